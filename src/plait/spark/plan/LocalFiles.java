package plait;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, with permissions set by a system call: without its native library it forks a chmod for every file.
 * And a filter is asked before a file is looked at: in each batch Spark lists the whole log of a file source for the few that expire.
 */
public class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  /** What Hadoop's own gives: of the folder's files but checksums those that the filter takes, and none that goes meanwhile. */
  @Override
  public FileStatus[] listStatus(Path folder, PathFilter filter) throws IOException {
    String[] names = pathToFile(folder).list();
    if (names == null) {
      return super.listStatus(folder, filter); // a file, or nothing at all
    }
    List<FileStatus> found = new ArrayList<>();
    for (String name : names) {
      Path path = makeQualified(new Path(folder, new Path(null, null, name)));
      if (!isChecksumFile(path) && filter.accept(path)) {
        try {
          found.add(getFileStatus(path));
        } catch (FileNotFoundException gone) {
          continue;
        }
      }
    }
    return found.toArray(new FileStatus[0]);
  }

  static class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) {
        super.setPermission(path, permission);
        return;
      }
      String letters = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL + permission.getOtherAction().SYMBOL;
      Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(letters));
    }
  }
}
