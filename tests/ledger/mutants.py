"""All mutants that the ledger may name."""

from typing import Final

from tests.ledger import guards_of_control, guards_of_quotas, guards_of_replication

MUTANTS: Final = {
    mutant.name: mutant
    for module in (guards_of_replication, guards_of_quotas, guards_of_control)
    for mutant in module.MUTANTS
}
