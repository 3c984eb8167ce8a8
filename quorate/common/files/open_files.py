"""The limit on the number of files that this process may have open."""

import resource


def allow_many_files(wanted: int) -> None:
    """Raise the limit to ``wanted`` open files, or as many as the system allows.

    Connections of strangers must not use up the files that journal and snapshot need.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
