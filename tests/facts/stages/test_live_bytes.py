"""What fake tensors say about live bytes is what real ones do."""

import pytest

from offcert.questions.schedule.plan import Plan
from offcert.runtime.plan.predict import predict
from offcert.runtime.workloads.workload import Workload
from offcert_lab.stages.recording import prepare, record
from support.networks.shallow_networks import shallow
from support.stage_recordings import real_recording

NETWORKS = {
    "resnet18": (2, 3, 64, 64),
    "resnet50": (2, 3, 64, 64),
    "densenet121": (2, 3, 64, 64),
    "inception_v3": (2, 3, 96, 96),
    "alexnet": (2, 3, 64, 64),
    "gpt-tiny": (2, 16),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_fake_and_real_live_bytes_are_equal_at_every_event(name):
    workload = Workload(name, NETWORKS[name])
    with shallow():
        fake = record(prepare(workload.build(shapes_only=True), workload))
        real = real_recording(workload.build(), workload)
    assert real.at_end == fake.at_end
    assert real.peaks == fake.peaks
    trace = fake.trace()
    assert real.trace() == trace
    # The trace says the same without having seen the curve.
    predicted = predict(trace, Plan())
    assert predicted.at_end == tuple(real.at_end)
    assert predicted.at_begin == tuple(real.at_begin)
    assert all(p >= r for p, r in zip(predicted.peaks, real.peaks, strict=True))


def test_second_step_repeats_the_first():
    workload = Workload("resnet18", (2, 3, 64, 64))
    model = workload.build()
    first, second = (real_recording(model, workload) for _ in range(2))
    assert second.trace() == first.trace()
    assert (second.at_end, second.peaks) == (first.at_end, first.peaks)


def test_bfloat16_halves_activations_but_not_labels_and_indices():
    def sizes(dtype):
        workload = Workload("resnet18", (2, 3, 64, 64), dtype=dtype)
        trace = record(prepare(workload.build(shapes_only=True), workload)).trace()
        return {tensor.name: tensor.size for tensor in trace.tensors}

    wide, narrow = sizes("float32"), sizes("bfloat16")
    assert 2 * narrow["x1"] == wide["x1"] == 2 * 64 * 32 * 32 * 4
    assert narrow["labels"] == wide["labels"] == 2 * 8
    # The maximum pooling's indices.
    assert narrow["internals2"] == wide["internals2"] == 2 * 64 * 16 * 16 * 8
