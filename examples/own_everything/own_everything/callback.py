"""A callback that logs the mean loss of all seeds to a CSV file."""

from typing import Any

import gtrl


@gtrl.register
class LossCsv(gtrl.Callback):
    """Writes `loss.csv` in the run directory; a resumed run continues the same file."""

    name = "loss-csv"

    def on_start(self, session: Any) -> None:
        path = session.run.path / "loss.csv"
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        kept = [line for line in lines if int(line.split(",")[0]) <= session.start]
        self.file = path.open("w")
        self.file.write("\n".join(["step,loss", *kept]) + "\n")

    def on_log(self, step: int, rows: list[dict[str, Any]]) -> None:
        self.file.write(f"{step},{sum(row['loss'] for row in rows) / len(rows)}\n")
        self.file.flush()

    def on_end(self, error: BaseException | None) -> None:
        self.file.close()
