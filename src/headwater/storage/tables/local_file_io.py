"""Local files for PyIceberg's readers, with `open` alone.

PyIceberg's own file layer loads Arrow's data sets, which load pandas: 1.4 s of a command that reads ten small metadata
files. This one loads nothing and cannot write, so a reader cannot harm a table.
"""

import os
from typing import BinaryIO, Never

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from headwater.storage.io.local_path import local_path


class LocalFile(InputFile):
    def __len__(self) -> int:
        return os.stat(local_path(self.location)).st_size

    def exists(self) -> bool:
        return os.path.exists(local_path(self.location))

    def open(self, seekable: bool = True) -> InputStream:
        stream: BinaryIO = open(local_path(self.location), "rb")  # noqa: SIM115
        return stream


class LocalFiles(FileIO):
    def new_input(self, location: str) -> LocalFile:
        return LocalFile(location)

    def new_output(self, location: str) -> OutputFile:
        self._refuse(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._refuse(str(location))

    def _refuse(self, location: str) -> Never:
        raise PermissionError(f"tables are open for reading only: {location}")
