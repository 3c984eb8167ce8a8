"""The console: a web page of the cluster, served by every broker with ``console.listener``.

Whatever a person does there is a Kafka request that this broker, or the broker that has the data,
carries out with the rights of that person (decision 134).
"""
