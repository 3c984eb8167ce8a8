"""Observe the table at a broker, and print it: of Quorate's, or with ``--kafka`` of Kafka's."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.support.authorization_table.asking import Addresses, Clients, Table
from tests.support.authorization_table.brokers import kafka_broker, quorate_broker
from tests.support.authorization_table.rows import titled_rows
from tests.support.authorization_table.tables import written


async def observed_at(at: Addresses) -> dict[str, dict[str, str]]:
    """Return the table of the broker."""
    clients = Clients(at)
    try:
        return await Table(clients).observe(titled_rows())
    finally:
        await clients.close()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", action="store_true")
    broker = kafka_broker if parser.parse_args().kafka else quorate_broker
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as at:
        table = asyncio.run(observed_at(at))
    sys.stdout.write(written(table))


if __name__ == "__main__":
    main()
