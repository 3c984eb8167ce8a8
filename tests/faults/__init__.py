"""One long run of faults of every kind over brokers, voters, links and disks, under load."""
