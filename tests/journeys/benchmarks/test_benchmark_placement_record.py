"""Placements that are kept are checked against the file that they are for."""

import importlib.util
import json
from pathlib import Path

import offcert

PATH = Path(offcert.__file__).parents[1] / "benchmarks" / "placement_record.py"


def test_a_record_is_checked(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("placement_record", PATH)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (tmp_path / "two.csv").write_text("id,lower,upper,size\na,0,2,4\nb,1,3,5\n")
    record = tmp_path / "record.json"
    for addresses, pool, faults in (([0, 4], 9, 0), ([0, 3], 9, 1), ([0, 4], 8, 1)):
        kept = {"instance": "two.csv", "pool": pool, "addresses": addresses}
        record.write_text(json.dumps(kept))
        said, found = script.faults_of(tmp_path, record)
        assert said.startswith("two.csv: pool ")
        assert said.endswith(", load 9 bytes")
        assert len(found) == faults
    kept = json.loads(script.RECORD.read_text())
    assert min(kept["addresses"]) == 0
    assert max(kept["addresses"]) < kept["pool"]
