"""The walk as machine code: how it is put into memory and called.

The code is a C function ``int32 walk(int64 *result, void **exception, uint8 *records, int64
*block)`` that uses nothing but its arguments. It lies in a file in memory that is mapped as
executable and not as writable, which systemd's ``MemoryDenyWriteExecute`` allows.
"""

import ctypes
import os
import platform
import struct
from typing import Final

from quorate.broker.log.record_walk.code import CODE
from quorate.broker.log.record_walk.layout import (
    ASKED,
    BLOCK_NUMBERS,
    GREATEST,
    LISTED_MAX,
    ROW_NUMBERS,
    ROWS,
    RefusedRecord,
    WalkAnswer,
    WalkQuestion,
)

_READ_AND_EXECUTE: Final = 0x1 | 0x4
_PRIVATE: Final = 0x2
_FAILED: Final = ctypes.c_void_p(-1).value
_POINTER: Final = ctypes.c_void_p
_ARGUMENTS: Final = (ctypes.c_int32, _POINTER, _POINTER, _POINTER, _POINTER)
_QUESTION: Final = struct.Struct(f"={ASKED}q")
_ANSWER: Final = struct.Struct("=4q")
_ANSWER_AT: Final = 8 * GREATEST
_ROW: Final = struct.Struct(f"={ROW_NUMBERS}q")

_address = ctypes.addressof
_first_byte = ctypes.c_char.from_buffer


class _Py_buffer(ctypes.Structure):
    _fields_ = (("buf", ctypes.c_void_p), ("rest", ctypes.c_char * 256))


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, _POINTER, ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (_POINTER,)
_release_buffer.restype = None


class NoMachineCode(OSError):
    """The walk has no machine code for this machine, or the machine does not let it run."""


class MachineWalk:
    """The walk of one thread.

    With ``keeps_lock`` other threads wait meanwhile. That is cheaper where the walk is short, as it
    is with few steps: to get Python's lock back may take much longer than the walk.
    """

    def __init__(self, code: int, *, keeps_lock: bool) -> None:
        """Use the code at an address that ``mapped_code`` has returned."""
        declare = ctypes.PYFUNCTYPE if keeps_lock else ctypes.CFUNCTYPE
        self._walk = declare(*_ARGUMENTS)(code)
        self._block = bytearray(8 * BLOCK_NUMBERS)
        self._block_address = _address(_first_byte(self._block))
        self._status = ctypes.c_int64()
        self._exception = ctypes.c_void_p()
        self._outputs = _address(self._status), _address(self._exception)
        self._buffer = _Py_buffer()
        self._buffer_address = _address(self._buffer)

    def __call__(self, records: memoryview, begin: int, question: WalkQuestion) -> WalkAnswer:
        """Walk over the records that begin at ``begin``."""
        if not 0 <= begin <= begin + question.size <= len(records):
            raise ValueError(f"{question.size} bytes at {begin} are not in {len(records)}")
        _QUESTION.pack_into(self._block, 0, *question)
        if records.readonly:
            self._walk_read_only(records, begin)
        else:
            place = _address(_first_byte(records)) + begin
            self._walk(*self._outputs, place, self._block_address)
        greatest, record, at, count = _ANSWER.unpack_from(self._block, _ANSWER_AT)
        refused = self._refused(count) if count else _NONE
        return WalkAnswer(self._status.value, greatest, record, at, count, refused)

    def _refused(self, count: int) -> list[RefusedRecord]:
        rows = memoryview(self._block)[8 * ROWS :]
        listed = rows[: _ROW.size * min(count, LISTED_MAX)]
        return [RefusedRecord(*row) for row in _ROW.iter_unpack(listed)]

    def _walk_read_only(self, records: memoryview, begin: int) -> None:
        _get_buffer(records, self._buffer_address, 0)
        try:
            place = self._buffer.buf + begin
            self._walk(*self._outputs, place, self._block_address)
        finally:
            _release_buffer(self._buffer_address)


_NONE: Final[list[RefusedRecord]] = []


def mapped_code() -> int:
    """Map the code for this machine into memory, for the life of the process. Return its address.

    Raises:
        NoMachineCode: says why not.
    """
    machine, system = platform.machine(), platform.system()
    code = CODE.get(machine)
    if code is None or system != "Linux":
        raise NoMachineCode(f"there is machine code for Linux on {', '.join(CODE)}; this is "
                            f"{system} on {machine}")  # fmt: skip
    try:
        return _mapped(code)
    except OSError as error:
        raise NoMachineCode(f"the system maps no code: {error}") from error


def _mapped(code: bytes) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        _POINTER, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    file = os.memfd_create("quorate-record-walk")
    try:
        os.write(file, code)
        address: int | None = library.mmap(None, len(code), _READ_AND_EXECUTE, _PRIVATE, file, 0)
    finally:
        os.close(file)
    if address is None or address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return address
