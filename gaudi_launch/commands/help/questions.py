"""Questions of users, with the command for each.

`gaudi-launch help` and docs/questions.md show them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question, by the id of its text, and the arguments that answer it."""

    id: str
    arguments: str

    @property
    def command(self) -> str:
        """Return the command line to type."""
        return f"gaudi-launch {self.arguments}"


# the titles are those of the command groups in --help
QUESTIONS: dict[str, tuple[Question, ...]] = {
    "Start and watch": (
        Question("questions.try", "serve demo"),
        Question("questions.start", "serve MODEL -n 4 --detach"),
        Question("questions.several", "stack init MODEL MODEL"),
        Question("questions.several_up", "stack up stack.yaml"),
        Question("questions.running", "ps"),
        Question("questions.ready", "wait NAME"),
        Question("questions.top", "top"),
        Question("questions.state", "status NAME"),
        Question("questions.log", "logs NAME -f"),
        Question("questions.why", "why"),
        Question("questions.stop", "stop NAME"),
        Question("questions.restart", "restart NAME"),
        Question("questions.orphans", "stop --orphans"),
        Question("questions.check", "check NAME"),
        Question("questions.bench", "bench NAME"),
        Question("questions.compare", "bench compare A.json B.json"),
        Question("questions.learn", "bench --learn RESULT.json"),
        Question("questions.chat", "chat NAME"),
        Question("questions.run", "run MODEL"),
        Question("questions.webui", "webui NAME"),
    ),
    "Plan": (
        Question("questions.plan", "plan MODEL"),
        Question("questions.plan_laptop", "plan MODEL --machine simulated:hls2"),
        Question("questions.warmup", "warmup MODEL"),
        Question("questions.recommend", "recommend MODEL"),
        Question("questions.speed", "estimate MODEL --accelerator gaudi2"),
        Question("questions.tune", "tune DIR/*.yaml --minutes 30"),
        Question("questions.capacity", "recommend MODEL --rate 10/s"),
        Question("questions.script", "migrate 'COMMAND'"),
    ),
    "Machine": (
        Question("questions.healthy", "doctor"),
        Question("questions.repair", "doctor --fix"),
        Question("questions.support_case", "doctor --bundle FILE"),
        Question("questions.cards", "devices"),
        Question("questions.snapshot", "devices snapshot FILE"),
        Question("questions.power", "devices"),
        Question("questions.metrics", "exporter"),
    ),
    "Models": (
        Question("questions.pull", "pull OWNER/NAME"),
        Question("questions.inspect", "inspect DIR"),
        Question("questions.fit", "inspect MODEL"),
        Question("questions.support", "inspect MODEL --all"),
        Question("questions.calibrate", "fp8 calibrate MODEL -n 2"),
        Question("questions.convert", "fp8 convert DIR OUT"),
    ),
    "More machines": (
        Question("questions.docker", "serve MODEL --in docker"),
        Question("questions.render", "render docker MODEL"),
        Question("questions.systemd", "render systemd MODEL --to DIR"),
        Question("questions.kubernetes", "render kubernetes MODEL"),
        Question("questions.kube", "kube status"),
        Question("questions.cluster", "cluster plan MODEL --hosts A,B"),
        Question("questions.ray", "render ray-serve MODEL"),
    ),
    "Maintain": (
        Question("questions.setup", "setup ENGINE"),
        Question("questions.rollback", "setup ENGINE --rollback"),
        Question("questions.offline", "offline install PACK"),
        Question("questions.engines", "engines"),
        Question("questions.cache", "cache list"),
        Question("questions.cache_copy", "cache export KEY FILE"),
        Question("questions.profiles", "profiles show NAME"),
        Question("questions.docs", "help TOPIC"),
        Question("questions.options", "help COMMAND"),
    ),
}
