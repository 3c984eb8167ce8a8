"""Gets the jars of Spark's own Kafka connector and of its Avro functions, by Maven."""

from pathlib import Path
from typing import Final

from tests.support.kafka_jars import jars_of

RELEASE: Final = "4.2.0"
"""The newest that Maven Central has. It runs in the Spark of the lock file, which is 4.3."""
_WANTED: Final = ("spark-", "kafka-clients", "commons-pool2")
_POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>spark-connectors</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{RELEASE}</version></dependency>
    <dependency><groupId>org.apache.spark</groupId>
      <artifactId>spark-avro_2.13</artifactId><version>{RELEASE}</version></dependency>
  </dependencies>
</project>
"""


def connector_jars() -> list[Path]:
    """Return the jars that a session needs as ``spark.jars``; Spark has the others itself.

    Raises:
        NoKafka: there is no Maven, or no jar to be had.
    """
    found = jars_of(f"spark-connectors-{RELEASE}", _POM)
    return [jar for jar in sorted(found.glob("*.jar")) if jar.name.startswith(_WANTED)]
