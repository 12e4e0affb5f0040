"""Apache Kafka 4.x in KRaft mode, one broker or more, on loopback ports and in a folder that is removed again.

The jars come through Maven once, into the cache folder. Every broker is also a controller, so that three of them
survive the loss of one. A broker's own defaults are left as they are where a test on two cores can live with them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from support.watched import HOST, MissingError, Watched, cache_folder, free_port

VERSION = "4.4.0"
START_S_MAX = 90.0
MAVEN_S_MAX = 900.0
JAVA_MIN = 17
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fleetpulse</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
LOGGING = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %m (%c{1})%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
"""
# Brokers start faster and stay small: no second compiler, one collector thread.
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")


def require_java() -> str:
    """Path of a java that is new enough, else MissingError."""
    java = shutil.which("java")
    if java is None:
        raise MissingError(f"no java on PATH: Apache Kafka {VERSION} needs Java {JAVA_MIN}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise MissingError(f"Apache Kafka {VERSION} needs Java {JAVA_MIN}; java says: {said.splitlines()[:1]}")
    return java


def kafka_jars() -> Path:
    """Folder with Kafka's jars and everything they need; fetched through Maven when the cache has none."""
    folder = cache_folder() / f"kafka-{VERSION}"
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingError(f"no mvn on PATH, which fetches Apache Kafka {VERSION} into {cache_folder()}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        work = Path(made)
        (work / "pom.xml").write_text(POM)
        jars = work / "jars"
        subprocess.run(
            [
                *(maven, "-q", "-B", "-f", str(work / "pom.xml")),
                *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"),
            ],
            check=True,
            timeout=MAVEN_S_MAX,
            stdin=subprocess.DEVNULL,
        )
        # Whole or not at all, and a run beside this one may have been first.
        with contextlib.suppress(FileExistsError, OSError):
            jars.rename(folder)
    assert folder.is_dir()
    return folder


class KafkaCluster:
    """A running cluster. Brokers are counted from 0; broker i has the node id i + 1."""

    def __init__(self, brokers: int, settings: Mapping[str, str], heap_mb: int, folder: Path) -> None:
        self._java = require_java()
        self._jars = kafka_jars()
        self._heap = (f"-Xms{heap_mb // 2}m", f"-Xmx{heap_mb}m")
        self._folder = folder
        self._settings = dict(settings)
        chance = random.Random(uuid.uuid4().int)
        self.ports = [free_port(chance) for _ in range(brokers)]
        self._controllers = [free_port(chance) for _ in range(brokers)]
        self._cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self._running: list[Watched | None] = [None] * brokers
        (folder / "log4j2.properties").write_text(LOGGING)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def start(self) -> None:
        for number in range(len(self.ports)):
            self._write_properties(number)
            formatted = self._run_tool("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", number)
            assert formatted.returncode == 0, formatted.stdout + formatted.stderr
        for number in range(len(self.ports)):
            self._start_one(number)
        self.await_brokers(len(self.ports))

    def kill(self, number: int = 0) -> None:
        """kill -9"""
        broker = self._running[number]
        assert broker is not None, f"broker {number} does not run"
        broker.kill()
        self._running[number] = None

    def shut(self, number: int = 0, *, timeout_s: float = 30.0) -> None:
        """A controlled shutdown, as a rolling restart does."""
        broker = self._running[number]
        assert broker is not None, f"broker {number} does not run"
        broker.terminate(timeout_s)
        self._running[number] = None

    def restart(self, number: int = 0) -> None:
        """Start a broker that was killed or shut, on the same port and files; one that runs is shut before."""
        if self._running[number] is not None:
            self.shut(number)
        self._start_one(number)
        self.await_brokers(sum(broker is not None for broker in self._running))

    def stop(self) -> None:
        for broker in self._running:
            if broker is not None:
                # Its files are removed anyway.
                broker.kill()
        self._running = [None] * len(self._running)

    def output(self, number: int = 0) -> str:
        """All that a broker has printed, over its restarts."""
        return self._log(number).read_text(errors="replace")

    def await_brokers(self, count: int) -> None:
        """Returns when `count` brokers are in the cluster and answer, and each knows of that many."""
        deadline = time.monotonic() + START_S_MAX
        said: object = None
        while time.monotonic() < deadline:
            for number, broker in enumerate(self._running):
                if broker is not None and not broker.running:
                    raise AssertionError(f"broker {number} ended: {broker.tail()}")
            try:
                known = [
                    self._known_to(port)
                    for port, broker in zip(self.ports, self._running, strict=True)
                    if broker is not None
                ]
                if min(known) >= count:
                    return
                said = f"they know of {known} brokers"
            except (KafkaError, OSError) as error:
                said = error
            time.sleep(0.1)
        raise AssertionError(f"{count} brokers did not answer within {START_S_MAX:.0f} s: {said}")

    def _known_to(self, port: int) -> int:
        """How many brokers the one at this port knows of: it can be behind the others for a moment."""
        admin = KafkaAdminClient(
            bootstrap_servers=f"{HOST}:{port}", bootstrap_timeout_ms=2_000, request_timeout_ms=5_000
        )
        try:
            return len(admin.describe_cluster()["brokers"])
        finally:
            admin.close()

    def _write_properties(self, number: int) -> None:
        copies = str(min(3, len(self.ports)))
        voters = ",".join(f"{i + 1}@{HOST}:{port}" for i, port in enumerate(self._controllers))
        values = {
            "process.roles": "broker,controller",
            "node.id": str(number + 1),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{self.ports[number]},CONTROLLER://{HOST}:{self._controllers[number]}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.ports[number]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self._folder / f"broker-{number}"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": copies,
            # 50 internal partitions make every start and take-over slower, and nothing else.
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "num.network.threads": "2",
            "num.io.threads": "2",
            **self._settings,
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        self._properties(number).write_text(text)

    def _properties(self, number: int) -> Path:
        return self._folder / f"broker-{number}.properties"

    def _log(self, number: int) -> Path:
        return self._folder / f"broker-{number}.log"

    def _command(self, main: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        return [self._java, *JVM, *self._heap, logging, "-cp", f"{self._jars}/*", main]

    def _run_tool(self, main: str, *arguments: str | int) -> subprocess.CompletedProcess[str]:
        """Arguments that are numbers stand for that broker's configuration file."""
        words = [str(self._properties(word)) if isinstance(word, int) else word for word in arguments]
        return subprocess.run(
            [*self._command(main), *words], capture_output=True, text=True, timeout=START_S_MAX, check=False
        )

    def _start_one(self, number: int) -> None:
        self._running[number] = Watched(
            [*self._command("kafka.Kafka"), str(self._properties(number))],
            self._log(number),
            {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
            self._folder,
        )


@contextlib.contextmanager
def kafka_cluster(
    brokers: int = 1, settings: Mapping[str, str] | None = None, *, heap_mb: int = 256
) -> Iterator[KafkaCluster]:
    """A cluster that answers; settings are added to every broker's configuration file. Raises MissingError."""
    with tempfile.TemporaryDirectory(prefix="fleetpulse-kafka-") as made:
        cluster = KafkaCluster(brokers, settings or {}, heap_mb, Path(made))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
