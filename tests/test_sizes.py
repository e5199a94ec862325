"""Sizes for own data: the rule, the discount, counted multiplications, the expected time and its warning."""

import numpy as np
import pytest

from gtrl.algorithms import make
from gtrl.data.dataset import Data, make_dataset
from gtrl.tasks import BATCH_SIZE, GRADIENT_STEPS, HIDDEN, LEARNING_RATE, TARGET_RATE, TASKS
from gtrl.training import sizes as module
from gtrl.training import train as train_module
from gtrl.training.config import Training, Update, configure
from gtrl.training.sizes import (
    Sizes,
    discount,
    expected_seconds,
    long_training_warning,
    multiply_adds,
    multiply_adds_per_second,
    own_defaults,
    sizes,
)

AMOUNTS = [1, 1000, 20_000, 50_000, 100_000, 300_000, 1_000_000, 30_000_000]
OBSERVATION, ACTION, GOAL = 5, 3, 2
DATASET = make_dataset(np.ones((8, OBSERVATION)), np.zeros((8, ACTION)), np.arange(8) % 4 == 3, np.ones((8, GOAL)))


def test_small_data_gets_the_measured_sizes_on_every_device() -> None:
    measured = Sizes(hidden=(64, 64, 64), batch_size=256, learning_rate=0.0024, target_rate=0.05, steps=8000)
    assert sizes(20_000, 12, "cpu") == sizes(20_000, 12, "gpu") == sizes(500, 12, "cpu") == measured


@pytest.mark.parametrize("transitions", [task.transitions for task in TASKS.values()])
def test_a_million_transitions_on_a_gpu_get_the_settings_of_the_paper(transitions: int) -> None:
    paper = Sizes(HIDDEN, BATCH_SIZE, LEARNING_RATE, TARGET_RATE, GRADIENT_STEPS)
    assert sizes(transitions, 2, "gpu") == paper == Sizes((512, 512, 512), 1024, 3e-4, 0.005, 1_000_000)


def test_100_000_transitions_are_between() -> None:
    # log(5) / log(50) = 0.4114 of the way: 64 * 4^0.4114 = 113.2, 256 * 2^0.4114 = 340.5, 0.05 * 0.2^0.4114 = 0.02579,
    # 8,000 * 6.25^0.4114 = 17,003; the learning rate is 3e-4 * 512 / 128.
    assert sizes(100_000, 12, "cpu") == Sizes((128, 128, 128), 320, 0.0012, 0.026, 17_000)


@pytest.mark.parametrize("device", ["cpu", "gpu", "tpu"])
def test_sizes_grow_with_the_data_and_rates_decrease(device: str) -> None:
    found = [sizes(amount, 12, device) for amount in AMOUNTS]
    for size in ("hidden", "batch_size", "steps"):
        values = [getattr(each, size) for each in found]
        assert values == sorted(values)
    for rate in ("learning_rate", "target_rate"):
        values = [getattr(each, rate) for each in found]
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(("observation_dim", "width"), [(1, 64), (16, 64), (17, 96), (29, 128), (69, 288), (1000, 512)])
def test_layers_are_four_times_as_wide_as_the_observation(observation_dim: int, width: int) -> None:
    found = sizes(20_000, observation_dim)
    assert found.hidden == (width, width, width)
    assert found.learning_rate == pytest.approx(3e-4 * 512 / width, rel=0.01)


@pytest.mark.parametrize(
    ("episode_length", "gamma"),
    [(1, 0.9), (100, 0.9), (99.8, 0.9), (125, 0.92), (300, 0.9667), (1000, 0.99), (2000, 0.995), (10**6, 0.995)],
)
def test_the_discount_follows_the_episode_length(episode_length: float, gamma: float) -> None:
    assert discount(episode_length) == gamma


def test_rows_of_the_log_follow_the_steps() -> None:
    data = Data(DATASET)
    assert own_defaults(data, "cpu")["log_every"] == 400  # 8,000 steps
    assert own_defaults(data, "cpu", 20)["log_every"] == own_defaults(data, "cpu", 5)["log_every"] == 1
    assert own_defaults(data, "cpu", 1000)["log_every"] == 50


def test_fields_that_are_the_same_on_all_tasks_are_not_chosen_by_the_data() -> None:
    own = own_defaults(Data(DATASET), "cpu")
    gammas = {name: configure(name, None, None, DATASET.spec, {}, own)[0].gamma for name in ("fbc", "gtrl")}
    assert gammas == {"fbc": 0.999, "gtrl": own["gamma"]}


def test_the_plan_is_printed_without_logging(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_module, "expected_seconds", lambda *_: 20.0)
    train_module._announce(make("bc", hidden=(7, 11)), Training(steps=50), Data(DATASET), seeds=1, start=0)
    assert "6 transitions: 7×11 units" in (printed := capsys.readouterr().out)
    assert "about 20 s on this machine" in printed


def test_multiplications_of_behavioural_cloning_by_hand() -> None:
    method, update = make("bc", hidden=(7, 11)), Update(batch_size=6, learning_rate=1e-3)
    forward = 6 * ((OBSERVATION + GOAL) * 7 + 7 * 11 + 11 * ACTION)
    # The gradient of every weight takes as many, and so does that of every layer's input but the first.
    to_inputs = 6 * (7 * 11 + 11 * ACTION)
    assert multiply_adds(method, update, DATASET) == 2 * forward + to_inputs


def test_multiplications_of_gtrl_by_hand() -> None:
    method, update = make("gtrl", hidden=(7, 11)), Update(batch_size=6, learning_rate=1e-3)

    def first(*inputs: int) -> int:
        return 6 * sum(inputs) * 7

    rest, actor_rest = 6 * (7 * 11 + 11), 6 * (7 * 11 + 11 * ACTION)
    critic, oracle = first(OBSERVATION, ACTION, OBSERVATION), first(OBSERVATION, ACTION, GOAL)
    # In GTRL the critic's goals are the task's or whole states; two networks each, four passes of the target.
    targets = 4 * 2 * (critic + rest)
    trained = 2 * (2 * (critic + rest) + rest) + 2 * (2 * (oracle + rest) + rest)
    actor = 2 * (first(OBSERVATION, GOAL) + actor_rest) + actor_rest
    # The policy's gradient passes through the acting critics to their inputs.
    through = 2 * 2 * (oracle + rest)
    assert multiply_adds(method, update, DATASET) == targets + trained + actor + through


def test_expected_time_is_work_divided_by_the_measured_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    method, update = make("bc", hidden=(7, 11)), Update(batch_size=6, learning_rate=1e-3)
    work = multiply_adds(method, update, DATASET)
    monkeypatch.setattr(module, "multiply_adds_per_second", lambda *_: 1000.0 * work)
    assert expected_seconds(method, update, DATASET, steps=5000) == pytest.approx(5.0)
    assert expected_seconds(method, update, DATASET, steps=5000, seeds=3) == pytest.approx(15.0)
    monkeypatch.setattr("gtrl.training.loop.default_workers", lambda: 2)  # small seeds share the cores of a CPU
    apart = update._replace(fast=("apart",))
    assert expected_seconds(method, apart, DATASET, steps=5000, seeds=3) == pytest.approx(10.0)


def test_the_rate_of_this_machine_is_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALIBRATION_SECONDS", 0.02)
    assert 1e5 < multiply_adds_per_second((16, 16), 32, ("kernels", "apart")) < 1e16


def test_more_than_an_hour_is_warned_about_with_what_is_faster() -> None:
    assert long_training_warning(3600.0, 4, "cpu", "float32") is None
    assert long_training_warning(2.5 * 3600, 4, "cpu", "float32") == (
        "training is expected to take 2.5 hours; faster would be a smaller network (--hidden 128 128 128), a smaller "
        "--batch-size, fewer --steps, one seed instead of 4 (--seeds 0) or a GPU."
    )
    on_gpu = long_training_warning(2.5 * 3600, 1, "gpu", "float32")
    assert on_gpu is not None
    assert on_gpu.endswith("fewer --steps or --precision bfloat16.")


@pytest.mark.parametrize(("hidden", "width"), [((512, 512, 512), 512), ((64, 40), 40), ((17,), 24)])
def test_the_embedding_of_qrl_follows_the_network(hidden: tuple[int, ...], width: int) -> None:
    assert make("qrl", hidden=hidden).width == width  # type: ignore[attr-defined]
    assert make("qrl", hidden=hidden, latent=16).width == 16  # type: ignore[attr-defined]
