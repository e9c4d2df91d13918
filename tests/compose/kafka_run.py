"""In the stand-in for apache/kafka: KAFKA_A_B=x becomes a.b=x, the storage is formatted once, the broker runs."""

import os
import subprocess
from pathlib import Path

SETTINGS = Path("/opt/kafka/config/server.properties")
JAVA = ("java", "-Xmx512m", "-cp", "/opt/kafka/libs/*")
NOT_SETTINGS = ("KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_OPTS")


def main() -> None:
    named = {
        name: value for name, value in os.environ.items() if name.startswith("KAFKA_") and name not in NOT_SETTINGS
    }
    lines = (f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}\n" for name, value in named.items())
    SETTINGS.write_text("".join(lines))
    if not (Path(named["KAFKA_LOG_DIRS"]) / "meta.properties").exists():
        form = ("kafka.tools.StorageTool", "format", "-t", os.environ["CLUSTER_ID"], "-c", str(SETTINGS))
        subprocess.run((*JAVA, *form), check=True)
    os.execvp(JAVA[0], (*JAVA, "kafka.Kafka", str(SETTINGS)))


if __name__ == "__main__":
    main()
