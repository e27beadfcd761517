"""A real Kafka broker for tests: one node, KRaft, on loopback, a process that is stopped by its id.

Its jars, and those of Spark's connector, come from Maven by name (`pom.xml`) and stay in the virtual environment.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

_HERE = Path(__file__).parent
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def jars() -> Path | None:
    """The folder with the jars, fetched once; None where there is no Maven."""
    folder = Path(sys.prefix) / "kafka-jars"
    done = folder / ".complete"
    if done.exists() and done.read_bytes() == (_HERE / "pom.xml").read_bytes():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([maven, "-q", "-B", "-f", str(_HERE / "pom.xml"), _COPY, f"-DoutputDirectory={folder}"], check=True)
    done.write_bytes((_HERE / "pom.xml").read_bytes())
    return folder


def connector(folder: Path) -> list[Path]:
    """What Spark needs of them to read and write Kafka."""
    names = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
    return [path for path in sorted(folder.glob("*.jar")) if path.name.startswith(names)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def broker(jars: Path, folder: Path, *, partitions: int) -> Iterator[str]:
    """Start a broker that makes topics of so many partitions when they are first written to; gives its address."""
    with broker_that_dies(jars, folder, partitions=partitions) as made:
        yield made.address


@contextlib.contextmanager
def broker_that_dies(jars: Path, folder: Path, *, partitions: int) -> Iterator[Broker]:
    """The same, to be killed and started again in between."""
    made = Broker(jars, folder, partitions)
    made.start()
    try:
        yield made
    finally:
        made.process.terminate()
        try:
            made.process.wait(20)
        except subprocess.TimeoutExpired:
            made.process.kill()
            made.process.wait()


class Broker:
    """A broker at one address, whose log stays when it is killed."""

    def __init__(self, jars: Path, folder: Path, partitions: int) -> None:
        self.port, controller = _free_port(), _free_port()
        self.address, self.folder = f"127.0.0.1:{self.port}", folder
        self.properties = folder / "server.properties"
        self.properties.write_text(f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}
log.dirs={folder}/logs
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
""")
        self.java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format = [*self.java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.properties)]
        subprocess.run(format, check=True, capture_output=True)

    def start(self) -> None:
        """Comes back when it answers."""
        with open(self.folder / "broker.log", "ab") as log:
            command = [*self.java, "kafka.Kafka", str(self.properties)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait(self.process, self.port, self.folder / "broker.log")
        except BaseException:
            self.process.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(300):
        assert process.poll() is None, log.read_text()[-3000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError(f"no answer from the broker: {log.read_text()[-3000:]}")
