package lakehouse.logstore;

import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Iterator;
import java.util.UUID;

import io.delta.storage.HadoopFileSystemLogStore;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Writes a version of a Delta table on a local disk or NFS only if no writer has written it: all
 * actions go to a hidden file, and link(2) gives it the version's name. The link fails if the name
 * is taken; rename(2), which Delta's own log store uses, would overwrite it.
 *
 * <p>NFS repeats requests, so a link may be reported as taken although our own request made it.
 * Therefore a failed link counts as success if the name leads to our hidden file.
 *
 * <p>The folder is not flushed to the disk. Spark does not flush the data files that a version
 * names, and after a power failure a table without its last version is of more use than a version
 * without its files.
 *
 * <p>Source: link(2): "If newpath exists, it will not be overwritten. On NFS filesystems, the
 * return code may be wrong in case the NFS server performs the link creation and dies".
 */
public final class LinkLogStore extends HadoopFileSystemLogStore {
    public LinkLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(
            Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
            throws IOException {
        java.nio.file.Path file = Paths.get(path.toUri().getPath());
        java.nio.file.Path folder = file.getParent();
        if (!Files.isDirectory(folder)) {
            throw new FileNotFoundException("No such folder: " + folder);
        }
        String name = file.getFileName().toString();
        java.nio.file.Path hidden =
            folder.resolve("." + name + "." + UUID.randomUUID() + ".tmp");
        try {
            writeAndFlush(hidden, actions);
            // Hadoop would compare the checksum of an earlier file of this name with the new content.
            Files.deleteIfExists(folder.resolve("." + name + ".crc"));
            if (overwrite) {
                Files.move(hidden, file, StandardCopyOption.ATOMIC_MOVE);
            } else {
                link(hidden, file);
            }
        } finally {
            try {
                Files.deleteIfExists(hidden);
            } catch (IOException leftBehind) {
                // A hidden file does no harm. An error here would deny a version that is committed.
            }
        }
    }

    /** Checkpoints are written by Spark, directly to their name. */
    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return true;
    }

    /** Uses no channel, since an interrupt would close it. */
    private static void writeAndFlush(java.nio.file.Path hidden, Iterator<String> actions)
            throws IOException {
        try (FileOutputStream stream = new FileOutputStream(hidden.toFile())) {
            while (actions.hasNext()) {
                stream.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
            }
            // Otherwise, the name could survive a crash of the machine without the content.
            stream.getFD().sync();
        }
    }

    private static void link(java.nio.file.Path hidden, java.nio.file.Path file)
            throws IOException {
        try {
            Files.createLink(file, hidden);
        } catch (IOException | UnsupportedOperationException failure) {
            if (!Files.exists(file, LinkOption.NOFOLLOW_LINKS)) {
                // NFS may carry out a request after it has failed here.
                throw new IOException(
                    "It is unknown whether " + file + " was committed: it is not there now, and "
                        + failure + ". Use a file system that takes hard links, and read the"
                        + " table's history before the statement is repeated.",
                    failure);
            }
            if (!Files.isSameFile(hidden, file)) {
                throw new FileAlreadyExistsException(file.toString());
            }
        }
    }
}
