"""The contracts of import-linter refuse what they are there to refuse.

``make check`` runs the contracts on the code as it is. This test adds one forbidden import to the
graph of imports, without writing a file, and sees the contract broken.
"""

import tomllib
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
SESSION_OPTIONS = {"root_packages": ["quorate", "quorate_proto"]}

UPWARD_IMPORTS = {
    "arrows": ("quorate.metadata_log.image", "quorate.broker.broker_server"),
    "floors": ("quorate.broker.log.log_manager", "quorate.broker.kafka.server"),
    "log": ("quorate.broker.log.options", "quorate.broker.log.log_manager"),
    "quorum-floors": ("quorate.quorum.client.quorum_client", "quorate.quorum.process"),
    "metadata-floors": ("quorate.metadata_log.image", "quorate.metadata_log.apply"),
}
"""By contract, an import that it forbids: the importing module and the imported one."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("quorate", "quorate_proto", cache_dir=None)


def declared_contracts() -> dict[str, dict[str, Any]]:
    with PYPROJECT.open("rb") as file:
        options = tomllib.load(file)["tool"]["importlinter"]
    return {contract["id"]: contract for contract in options["contracts"]}


def layers_contract(contract_id: str) -> Contract:
    options = declared_contracts()[contract_id]
    given = {
        key: str(value) if isinstance(value, bool) else value
        for key, value in options.items()
        if key not in ("id", "name", "type")
    }
    return LayersContract(options["name"], SESSION_OPTIONS, given)


def test_every_contract_of_layers_has_an_upward_import() -> None:
    layered = {name for name, one in declared_contracts().items() if one["type"] == "layers"}
    assert layered == UPWARD_IMPORTS.keys()


@pytest.mark.parametrize("contract_id", UPWARD_IMPORTS)
def test_an_upward_import_breaks_the_contract(graph: grimp.ImportGraph, contract_id: str) -> None:
    importer, imported = UPWARD_IMPORTS[contract_id]
    assert {importer, imported} <= graph.modules
    contract = layers_contract(contract_id)
    assert contract.check(graph, verbose=False).kept
    graph.add_import(importer=importer, imported=imported)
    try:
        assert not contract.check(graph, verbose=False).kept
    finally:
        graph.remove_import(importer=importer, imported=imported)
