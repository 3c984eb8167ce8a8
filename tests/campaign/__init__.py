"""A corruption campaign: every file of a data folder is damaged, and what comes of it is counted.

``python -m tests.campaign`` damages one folder at a time and opens it in a forked child;
``python -m tests.campaign.cluster`` damages one node of a running cluster.
"""
