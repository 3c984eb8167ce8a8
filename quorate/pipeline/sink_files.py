"""The sink's file system, through Spark's own Hadoop: local folders, HDFS, S3 and others.

On a local disk, a file is fsynced before it is moved into place. Other file systems make a file
durable before they confirm it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from quorate.pipeline.pipeline_errors import SinkError


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below the sink's folder."""

    path: str
    """The path, relative to the sink's folder."""
    modified_ms: int


class HadoopFiles:
    """A folder in a file system that Spark understands.

    Paths are relative to the folder. All methods raise ``SinkError``.
    """

    def __init__(self, session: SparkSession, path: str) -> None:
        """Open the file system of a path.

        Raises:
            SinkError: there is no such file system, or it cannot be reached.
        """
        self.root: str
        """The folder's path with its scheme, as Spark writes it."""
        context: Any = session.sparkContext
        self._jvm: Any = context._jvm
        self._conf: Any = context._jsc.hadoopConfiguration()
        self.root = path
        with self._naming(path):
            plain = self._jvm.org.apache.hadoop.fs.Path(_absolute(path))
            self._system: Any = plain.getFileSystem(self._conf)
            self.root = str(self._system.makeQualified(plain).toString()).rstrip("/")
        self._is_local = urlsplit(self.root).scheme == "file"

    def below(self, path: str) -> Iterator[FoundFile]:
        """Yield all files below a folder, at any depth; none if the folder does not exist."""
        with self._naming(path):
            folder = self._path(path)
            if not self._system.exists(folder):
                return
            found = self._system.listFiles(folder, True)
            while found.hasNext():
                status = found.next()
                full = str(status.getPath().toString())
                yield FoundFile(
                    full.removeprefix(self.root).lstrip("/"), int(status.getModificationTime())
                )

    def read_text(self, path: str) -> str:
        """Return the content of a file."""
        with self._naming(path):
            stream = self._system.open(self._path(path))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Write a file, and make it durable."""
        with self._naming(path):
            stream = self._system.create(self._path(path), True)
            try:
                stream.write(text.encode())
            finally:
                stream.close()
            self._make_durable(path)

    def move(self, source: str, target: str) -> None:
        """Move a file durably, and make the target's folder.

        Raises:
            SinkError: the source is gone, too.
        """
        with self._naming(target):
            self._make_durable(source)
            to = self._path(target)
            self._system.mkdirs(to.getParent())
            if not self._system.rename(self._path(source), to):
                raise SinkError(f"{self.root}/{source} could not be moved to {target}: it is gone")
            self._make_durable(target)

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything below it, if it exists."""
        with self._naming(path):
            self._system.delete(self._path(path), True)

    def rows(self, path: str) -> int:
        """Return the number of rows of a Parquet file, as its footer says."""
        with self._naming(path):
            hadoop = self._jvm.org.apache.parquet.hadoop
            file = hadoop.util.HadoopInputFile.fromPath(self._path(path), self._conf)
            reader = hadoop.ParquetFileReader.open(file)
            try:
                return int(reader.getRecordCount())
            finally:
                reader.close()

    def require_writable(self, path: str) -> None:
        """Make the folder, and try to write a file into it.

        Raises:
            SinkError: nothing can be written below the folder.
        """
        with self._naming(path):
            if not self._system.mkdirs(self._path(path)):
                raise SinkError(f"sink {self.root}: folder {path} cannot be made")
        probe = f"{path}/.writable"
        self.write_text(probe, "")
        self.delete(probe)

    def _path(self, path: str) -> Any:  # noqa: ANN401 - of Java
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{path}" if path else self.root)

    def _make_durable(self, path: str) -> None:
        if not self._is_local:
            return
        file = Path(url2pathname(urlsplit(f"{self.root}/{path}").path))
        for one in (file, file.parent):
            if one.exists():
                descriptor = os.open(one, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    @contextmanager
    def _naming(self, path: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            why = str(error.java_exception.toString()).splitlines()[0]
            raise SinkError(f"sink {self.root}, {path or 'its folder'}: {why}") from error
        except (Py4JError, OSError) as error:
            raise SinkError(f"sink {self.root}, {path or 'its folder'}: {error}") from error


def _absolute(path: str) -> str:
    """Make a relative path absolute by this process's working folder, not by that of the JVM.

    A path without a scheme is in Spark's default file system.
    """
    if urlsplit(path).scheme or path.startswith("/"):
        return path
    return str(Path(path).resolve())
