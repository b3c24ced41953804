package lakehouse.logstore;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import java.util.UUID;

import io.delta.storage.HadoopFileSystemLogStore;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.s3a.AWSServiceIOException;
import org.apache.hadoop.fs.s3a.Constants;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.hadoop.fs.s3a.commit.CommitConstants;

/**
 * Writes a version of a Delta table to S3 only if no writer has written it, by one conditional
 * request ({@code If-None-Match: *}). Any number of drivers may commit to a table, together with
 * other writers that use the same condition.
 *
 * <ol>
 *   <li>Before an action is read, file system and stream must promise the condition, a header of
 *       our own, and {@code abort()}. Streams of the magic committer are refused: their object
 *       becomes visible later, without the condition.
 *   <li>The actions are written to the stream. S3A publishes the object only in {@code close()}.
 *   <li>If an action cannot be read or written, the stream is aborted. Closing it would publish
 *       half a commit.
 *   <li>If {@code close()} fails, the object's metadata show who wrote it. S3A and the AWS SDK
 *       repeat requests, so 412 may also mean that our own first request succeeded.
 * </ol>
 *
 * Source: Hadoop 3.5.0, S3ABlockOutputStream.java and CreateFileBuilder.java; AWS, "Conditional
 * writes": 412 for an object that exists, 409 for a concurrent request on its key.
 */
public final class ConditionalS3LogStore extends HadoopFileSystemLogStore {
    private static final String CONDITION =
        CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE;
    private static final String WRITER = "lakehouse-writer";
    private static final int CONFLICT = 409;

    public ConditionalS3LogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(
            Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
            throws IOException {
        FileSystem fs = path.getFileSystem(conf);
        if (overwrite) {
            FSDataOutputStream stream = fs.create(path, true);
            writeOrAbort(stream, path, actions, StreamCapabilities.ABORTABLE_STREAM);
            stream.close();
            return;
        }
        require(fs.hasPathCapability(path, CONDITION), path, CONDITION);
        require(
            fs.hasPathCapability(path, Constants.FS_S3A_CREATE_HEADER),
            path,
            Constants.FS_S3A_CREATE_HEADER);
        String writer = UUID.randomUUID().toString();
        FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path);
        builder.overwrite(false);
        builder.must(CONDITION, true);
        builder.must(Constants.FS_S3A_CREATE_HEADER + "." + WRITER, writer);
        FSDataOutputStream stream = builder.build();
        writeOrAbort(stream, path, actions, StreamCapabilities.ABORTABLE_STREAM, CONDITION);
        publish(fs, path, stream, writer);
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return false;
    }

    /** Writes all actions, and leaves the stream open. After any failure, nothing is published. */
    private static void writeOrAbort(
            FSDataOutputStream stream, Path path, Iterator<String> actions, String... capabilities)
            throws IOException {
        try {
            for (String capability : capabilities) {
                require(stream.hasCapability(capability), path, capability);
            }
            if (stream.hasCapability(CommitConstants.STREAM_CAPABILITY_MAGIC_OUTPUT)) {
                throw new IOException(path + " lies below a folder of S3A's magic committer");
            }
            while (actions.hasNext()) {
                stream.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
            }
        } catch (Throwable failure) {
            try {
                stream.abort();
            } catch (RuntimeException another) {
                failure.addSuppressed(another);
            }
            throw failure;
        }
    }

    /** Closes the stream, which sends the object or completes its upload. */
    private static void publish(
            FileSystem fs, Path path, FSDataOutputStream stream, String writer)
            throws IOException {
        try {
            stream.close();
        } catch (IOException | RuntimeException failure) {
            // An interrupted thread could not ask S3. The interrupt is handed on afterwards.
            boolean isInterrupted = Thread.interrupted() || isInterrupt(failure);
            try {
                decide(fs, path, writer, failure);
            } finally {
                if (isInterrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }
    }

    /** Returns if our object was written; throws what is known otherwise. */
    private static void decide(FileSystem fs, Path path, String writer, Exception failure)
            throws IOException {
        String found;
        try {
            byte[] value = fs.getXAttr(path, Constants.XA_HEADER_PREFIX + WRITER);
            found = value == null ? "another writer" : new String(value, StandardCharsets.UTF_8);
        } catch (FileNotFoundException absent) {
            throw unknown(path, "there is no such object now", failure);
        } catch (IOException | RuntimeException unreadable) {
            failure.addSuppressed(unreadable);
            throw unknown(path, "its metadata cannot be read", failure);
        }
        if (found.equals(writer)) {
            return;
        }
        if (!isLostRace(failure)) {
            throw unknown(path, "the object is of another writer now", failure);
        }
        FileAlreadyExistsException lost = new FileAlreadyExistsException(path.toString());
        lost.initCause(failure);
        throw lost;
    }

    private static IOException unknown(Path path, String found, Exception failure) {
        String message = "It is unknown whether " + path + " was committed: " + found
            + ", and the request failed (" + failure + "). Read the table's history before the"
            + " statement is repeated.";
        return new IOException(message, failure);
    }

    private static boolean isLostRace(Throwable failure) {
        for (Throwable each = failure; each != null; each = each.getCause()) {
            boolean isConflict = each instanceof AWSServiceIOException
                && ((AWSServiceIOException) each).statusCode() == CONFLICT;
            // S3A's exception for 412
            if (isConflict || each instanceof RemoteFileChangedException) {
                return true;
            }
        }
        return false;
    }

    private static boolean isInterrupt(Throwable failure) {
        for (Throwable each = failure; each != null; each = each.getCause()) {
            // Timeouts of sockets are subclasses of InterruptedIOException.
            if (each instanceof InterruptedException
                    || each.getClass() == InterruptedIOException.class) {
                return true;
            }
        }
        return false;
    }

    private static void require(boolean isThere, Path path, String capability)
            throws IOException {
        if (!isThere) {
            throw new IOException(
                path + ": this file system lacks " + capability + ", which safe commits need. Use"
                    + " S3A of Hadoop 3.4.2 or newer with fs.s3a.create.conditional.enabled=true");
        }
    }
}
