import sys
from pathlib import Path

# Cases shared by several test modules of this folder; pytest's importlib mode puts no folder on the path.
sys.path.insert(0, str(Path(__file__).parent))
