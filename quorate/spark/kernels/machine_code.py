"""Loads machine code, and names the kind of machine that it is made for.

Code is made for a level of a processor family, not for one processor, so other machines can use it.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import llvmlite.binding as llvm

from quorate.spark.kernels.kernel_declaration import KernelArgument

_V3: Final = frozenset({"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"})
"""The features that x86-64-v3 has beyond older processors. Every server since 2015 has them."""
_OPTIMIZATION: Final = 3
_C_TYPES: Final = {
    KernelArgument.BYTES: ctypes.c_void_p,
    KernelArgument.INT32S: ctypes.c_void_p,
    KernelArgument.INT64S: ctypes.c_void_p,
    KernelArgument.FLOAT32S: ctypes.c_void_p,
    KernelArgument.FLOAT64S: ctypes.c_void_p,
    KernelArgument.INT: ctypes.c_int64,
}

_loaded: Final[list[Any]] = []
"""The engines whose code is in use. They are kept, because deleting one would unload its code."""

KernelFunction = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Machine:
    """The kind of machine that machine code is made for."""

    triple: str
    """LLVM's name of the architecture, the system and the binary format."""
    cpu: str
    """The level of the processor family."""

    @classmethod
    def this(cls) -> Self:
        """Return the kind of the machine that this process runs on."""
        triple: str = llvm.get_process_triple()
        features = llvm.get_host_cpu_features()
        has_v3 = triple.startswith("x86_64") and all(features.get(name) for name in _V3)
        return cls(triple, "x86-64-v3" if has_v3 else "generic")

    def target(self) -> Any:  # noqa: ANN401 - llvmlite has no types
        """Return LLVM's target machine, for position-independent code."""
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_triple(self.triple)
        return target.create_target_machine(
            cpu="" if self.cpu == "generic" else self.cpu, opt=_OPTIMIZATION, reloc="pic", jit=True
        )

    def load(
        self, symbol: str, object_file: bytes, arguments: tuple[KernelArgument, ...]
    ) -> KernelFunction:
        """Load an object file for the life of the process, and return its function ``symbol``.

        Raises:
            RuntimeError: the object file is malformed, or has no such symbol.
        """
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.target())
        engine.add_object_file(llvm.ObjectFileRef.from_data(object_file))
        engine.finalize_object()
        address = engine.get_function_address(symbol)
        if not address:
            raise RuntimeError(f"no symbol {symbol} in the machine code")
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int32,
            ctypes.c_void_p,
            ctypes.c_void_p,
            *(_C_TYPES[kind] for kind in arguments),
        )
        function = prototype(address)

        def call(*values: int) -> int:
            result, exception = ctypes.c_int64(), ctypes.c_void_p()
            status = function(ctypes.addressof(result), ctypes.addressof(exception), *values)
            if status:
                raise RuntimeError(f"{symbol} raised: status {status}")
            return result.value

        _loaded.append(engine)
        return call
