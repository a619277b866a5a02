"""Learning: no future leaks in, sessions equal whole readings, models are measured before they are used."""

import csv
import gzip
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import segue
from segue.apps.recommend.baselines import learn_neighbours
from segue.apps.recommend.batches import segments
from segue.apps.recommend.compare import interleaved, sign_test
from segue.apps.recommend.demo import prepare_demo
from segue.apps.recommend.features import popularity
from segue.apps.recommend.histories import (
    Histories,
    histories_of,
    late_from,
    split_by_time,
    split_last,
    wanted_events,
)
from segue.apps.recommend.learn import fit
from segue.apps.recommend.measure import come_back, quality, rank, ranks_of_network, states
from segue.apps.recommend.network import EventNetwork, Objective, network_config, sampled_nll
from segue.apps.recommend.reasons import attention_to
from segue.apps.recommend.store import RECOMMEND, add_events, history
from segue.apps.recommend.tables import Event, read_events, read_items, to_event, to_item
from tests.apps.recommend.shop import events, items, quick
from tests.command import command

OBJECTIVES: tuple[Objective, ...] = ("causal", "permutation", "masked")


def made_histories(rows: list[dict[str, Any]]) -> Histories:
    names = {row["item"]: 0 for row in sorted(rows, key=lambda row: str(row["item"]))}
    places = {name: place for place, name in enumerate(names, start=1)}
    ordered = sorted(rows, key=lambda row: (row["user"], row["time"]))
    numbered = [(n, row["user"], row["item"], row["kind"], row["time"]) for n, row in enumerate(ordered, start=1)]
    return histories_of(numbered, items=places, kinds={"view": 1, "buy": 2})


@pytest.fixture(scope="module")
def histories() -> Histories:
    return made_histories(events())


def fitted(histories: Histories, **settings: Any) -> EventNetwork:
    split = split_by_time(histories, held_back=0.1)
    chosen = quick(**{"epochs": 1, **settings})
    features_VF = np.zeros((25, 1), dtype=np.float32)
    network, _, _ = fit(
        histories,
        split,
        features_VF,
        ids=True,
        kind_weights=[1.0, 1.0, 3.0],
        settings=chosen,
        seed=0,
        repeats=True,
        told=lambda _: None,
    )
    return network


def test_nothing_is_learned_of_what_came_later(histories: Histories) -> None:
    """Other items after the last cut change no weight, and other items after the first none but by the epoch chosen."""
    split = split_by_time(histories, held_back=0.1)
    items_N = histories.items_N.copy()
    for user in range(len(histories.users)):
        start = int(histories.starts_U[user])
        items_N[start + int(split.learned_U[user]) : int(histories.starts_U[user + 1])] = 1 + user % 24
    changed = replace(histories, items_N=items_N)
    assert (changed.items_N != histories.items_N).any()
    before, after = fitted(histories).state_dict(), fitted(changed).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    near = [learn_neighbours(one, split.learned_U, items=24).alike_VK for one in (histories, changed)]
    assert np.array_equal(near[0], near[1])


def test_cuts_by_time_are_the_same_moment_for_everybody(histories: Histories) -> None:
    split = split_by_time(histories, held_back=0.1)
    learned, later = [], []
    for user in range(len(histories.users)):
        times = histories.times_N[histories.of(user)]
        learned += times[: split.learned_U[user]].tolist()
        later += times[split.learned_U[user] :].tolist()
    assert max(learned) <= min(later)
    assert abs(len(later) / (len(later) + len(learned)) - 0.2) < 0.02


def test_cuts_of_dates_without_hours() -> None:
    """Whole days are held out, never a part of one; with too few days, nothing is."""

    def split_of(days: list[int]) -> tuple[Histories, list[np.ndarray]]:
        rows = [{"user": f"u{n % 30}", "item": n % 7, "kind": "view", "time": day} for n, day in enumerate(days)]
        made = made_histories(rows)
        split = split_by_time(made, held_back=0.1)
        learned_N, chosen_N = made.first_events(split.learned_U), made.first_events(split.chosen_U)
        return made, [made.times_N[learned_N], made.times_N[chosen_N & ~learned_N], made.times_N[~chosen_N]]

    _, (learned, chosen, held) = split_of([n // 100 for n in range(600)])
    assert sorted(set(learned)) == [0, 1, 2, 3]
    assert set(chosen) == {4}
    assert set(held) == {5}
    assert len(held) == 100
    made, (learned, chosen, held) = split_of([0] * 100 + [1] * 500)  # most of all that there is
    assert len(learned) == 600
    assert not len(chosen)
    assert not len(held)
    late = late_from(made, made.lengths)
    assert (late == made.lengths).all()


def test_leaving_one_out(histories: Histories) -> None:
    split = split_last(histories)
    wanted = wanted_events(histories, split.chosen_U, histories.lengths, most=10**6, seed=0)
    assert wanted == [(user, length - 1) for user, length in enumerate(histories.lengths.tolist())]


@pytest.mark.parametrize("draw", [None, np.random.default_rng(3)])
def test_segments_read_every_history_once_in_order(histories: Histories, draw: np.random.Generator | None) -> None:
    read: dict[int, list[int]] = {}
    predicted: dict[int, list[int]] = {}
    before: list[int] = []
    for segment in segments(histories, histories.lengths, rows=5, length=4, draw=draw):
        users = segment.users_B.tolist()
        if segment.rows_B is not None:
            assert [before[row] for row in segment.rows_B.tolist()] == users
        before = users
        assert segment.real_BQ.sum() <= 5 * 4
        for row, user in enumerate(users):
            real = segment.real_BQ[row]
            assert (segment.rows_B is None) == (user not in read)
            assert segment.first_B[row] == len(read.get(user, []))
            read.setdefault(user, []).extend(segment.items_BQ[row][real].tolist())
            predicted.setdefault(user, []).extend(segment.next_BQ[row][real].tolist())
    for user in range(len(histories.users)):
        own = histories.items_N[histories.of(user)].tolist()
        assert read[user] == own[:-1]
        assert predicted[user] == own[1:]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_state_never_sees_what_it_predicts(histories: Histories, objective: Objective) -> None:
    """It is the same when the event that it predicts, its kind and all that follows are others."""
    config = network_config(items=24, objective=objective, layers=2, width=16, heads=2, memory=8, dropout=0.0)
    torch.manual_seed(0)
    network = EventNetwork(config, kind_weights=[1.0] * 3, features_VF=torch.zeros(25, 1), ids=True).eval()
    wanted = [(0, 3), (1, 5)]
    found = []
    for shift in (0, 5):
        items_N, kinds_N = histories.items_N.copy(), histories.kinds_N.copy()
        for user, place in wanted:
            here = slice(int(histories.starts_U[user]) + place, int(histories.starts_U[user + 1]))
            items_N[here] = 1 + (items_N[here] + shift) % 24
            kinds_N[here] = (kinds_N[here] + shift) % 3
        other = replace(histories, items_N=items_N, kinds_N=kinds_N)
        read = states(network, network.table(), other, wanted, length=4)
        found.append({key: row for keys, hidden in read for key, row in zip(keys, hidden, strict=True)})
    assert set(found[0]) == set(wanted)
    for key in wanted:
        assert torch.equal(found[0][key], found[1][key])
    assert not torch.equal(found[0][wanted[0]], found[0][wanted[1]])


def test_who_is_read_beside_a_user_and_where_segments_end_changes_nothing(histories: Histories) -> None:
    """No memory goes from one user to another; cut anywhere, an event sees the same past."""
    config = network_config(items=24, objective="causal", layers=2, width=16, heads=2, memory=6, dropout=0.0)
    torch.manual_seed(0)
    network = EventNetwork(config, kind_weights=[1.0] * 3, features_VF=torch.zeros(25, 1), ids=True).eval()
    wanted = [(user, int(length) - 1) for user, length in enumerate(histories.lengths)]
    whole = {key: row for keys, hidden in states(network, network.table(), histories, wanted, length=100)
             for key, row in zip(keys, hidden, strict=True)}  # fmt: skip
    pieces = {key: row for keys, hidden in states(network, network.table(), histories, wanted, length=4)
              for key, row in zip(keys, hidden, strict=True)}  # fmt: skip
    assert len(whole) == len(wanted)
    for user, place in wanted:
        torch.testing.assert_close(pieces[user, place], whole[user, place], atol=1e-5, rtol=1e-4)
    alone = made_histories([row for row in events() if row["user"] == histories.users[7]])
    places = dict(zip(alone.items_N.tolist(), histories.items_N[histories.of(7)].tolist(), strict=True))
    same = replace(alone, items_N=np.array([places[one] for one in alone.items_N.tolist()]))
    ((_, hidden),) = states(network, network.table(), same, [(0, wanted[7][1])], length=4)
    torch.testing.assert_close(hidden[0], whole[wanted[7]], atol=1e-5, rtol=1e-4)


def test_items_without_training_events_are_used_by_what_is_said_of_them() -> None:
    """Not by their ids and biases, of which training has only told that they do not occur."""
    config = network_config(items=6, objective="causal", layers=1, width=16, heads=2, memory=6, dropout=0.0)
    torch.manual_seed(0)
    features_VF = torch.randn(7, 3)
    features_VF[0] = 0
    network = EventNetwork(config, kind_weights=[1.0], features_VF=features_VF, ids=True).eval()
    with torch.no_grad():
        network.bias.copy_(torch.tensor([9.0, 1.0, 2.0, 3.0, -5.0, -6.0, 4.0]))
    fresh_V = torch.tensor([False, False, False, False, True, True, False])
    table_VD, bias_V = network.served(fresh_V)
    torch.testing.assert_close(table_VD[~fresh_V], network.table()[~fresh_V])
    said_VF = features_VF.clone()
    said_VF[:, 0] = 0  # nor are they popular
    torch.testing.assert_close(table_VD[fresh_V], network.project(said_VF)[fresh_V])
    assert bias_V.tolist() == [9, 1, 2, 3, 2, 2, 4]
    bare = EventNetwork(config, kind_weights=[1.0], features_VF=features_VF[:, :1], ids=True).eval()
    assert torch.equal(bare.served(fresh_V)[0], bare.table())


def test_ranks_are_among_all_items() -> None:
    scores = np.array([9.0, 3.0, 2.0, 2.0, 1.0], dtype=np.float32)
    assert rank(scores, 1, None) == 1
    assert rank(scores, 2, None) == 2.5
    assert rank(scores, 4, None) == 4
    assert rank(scores, 4, np.array([1, 2])) == 2
    found = quality(np.array([1.0, 2.0, 11.0]))
    assert found.hit_rate == pytest.approx(2 / 3)
    assert found.ndcg == pytest.approx((1 + 1 / np.log2(3)) / 3)


def test_the_report_has_what_is_simpler_beside_it(learned: Path) -> None:
    numbers = segue.describe_recommender(learned).numbers
    assert list(numbers["held_back"]) == ["segue", "network alone", "item-kNN", "popularity"]
    assert numbers["held_back"]["segue"]["ndcg"] > numbers["held_back"]["popularity"]["ndcg"]
    text = (learned / "models" / "0001" / "report.md").read_text()
    assert "item-kNN" in text
    assert "95 % interval" in text


def test_a_session_is_the_whole_history_read_at_once(learned: Path) -> None:
    model = segue.open_recommender(learned)
    with RECOMMEND.opened(learned) as database:
        past = database.do(lambda connection: history(connection, "user-2"))
    whole, steps = model.read_history(past), model.session()
    model.read(steps, past)
    np.testing.assert_allclose(model.scores(steps), model.scores(whole), atol=1e-4)
    assert steps.seen == whole.seen
    assert steps.number == whole.number


def test_a_session_is_restored_to_the_bit_and_forks_apart(learned: Path) -> None:
    model = segue.open_recommender(learned)
    some = [(n, Event(user="u", item=f"red-{n % 8}", time=1e9 + n)) for n in range(1, 31)]
    session = model.session()
    model.read(session, some[:20])
    again = model.restored(model.saved(session), session.number)
    fork = session.fork()
    model.read(fork, [(0, Event(user="u", item="blue-1", time=1e9))])
    for one in (session, again):
        model.read(one, some[20:])
    assert np.array_equal(model.scores(session), model.scores(again))
    assert not np.array_equal(model.scores(session), model.scores(fork))


@pytest.mark.parametrize("objective", OBJECTIVES[1:])
def test_other_objectives_learn_and_list(objective: Objective, tmp_path: Path) -> None:
    chosen = quick(objective=objective, vectors="ids", epochs=1, layers=1)
    segue.learn_recommender(events(users=9), tmp_path / "rec", settings=chosen, progress=False)
    found = segue.recommend(tmp_path / "rec", "user-1", count=3, why=True)
    assert len(found) == 3
    model = segue.open_recommender(tmp_path / "rec")
    assert (model.streamer is None) == (objective == "masked")
    attention = attention_to(model, [(1, 0, 0), (2, 0, 1), (3, 0, 1)])
    assert attention.shape == (3,)
    assert 0 < attention.sum() <= 1.0001


def test_learning_again_is_measured_before_it_is_used(rec: Path) -> None:
    nothing = command("recommend", "improve", rec)
    assert nothing.returncode == 2
    assert "must have events" in nothing.stderr
    late = max(row["time"] for row in events())
    new = [Event(user="user-1", item=f"blue-{n % 8}", time=late + n) for n in range(40)]
    with RECOMMEND.opened(rec) as database:
        database.do(lambda connection: add_events(connection, new))
    done = command("recommend", "improve", rec, width=200)
    assert done.returncode == 0, done.stderr
    said = re.search(r"40 new events.*before (\d\.\d+), now (\d\.\d+)", done.stdout)
    assert said is not None, done.stdout
    switched = "0002 is now in use" in done.stdout
    assert float(said[2]) >= float(said[1]) if switched else float(said[2]) <= float(said[1])
    assert segue.describe_recommender(rec).model == ("0002" if switched else "0001")
    compared = command("recommend", "compare", rec, "0001", "0002", width=200)
    assert re.search(r"0001 won \d+, 0002 won \d+, neither \d+; p = [01]\.", compared.stdout), compared.stderr
    assert "0001 is now in use" in command("recommend", "roll-back", rec, "--to", "0001").stdout
    assert "earlier model" in command("recommend", "roll-back", rec).stderr
    checked = command("recommend", "run", rec, "--port", "0", "--check", width=400)
    assert "can be run: model 0001 was loaded" in checked.stderr
    assert "serving on" not in checked.stderr
    assert "must be one of" in command("recommend", "compare", rec, "0001", "0009").stderr


def test_learning_again_without_deleted_people(rec: Path) -> None:
    """A deletion is a reason to learn again; the new model can be used even if it is measured lower."""
    deleted = len(segue.person_in_recommender(rec, "user-1", delete=True)["events"])
    done = command("recommend", "improve", rec, "--set", "learning_rate=0.0000001", width=400)
    assert done.returncode == 0, done.stderr
    assert f"0 new events, {deleted} deleted." in done.stdout
    assert "The current model stays in use" in done.stdout
    assert f"segue recommend roll-back {rec} --to 0002" in done.stdout.replace("\n", " ")
    assert segue.roll_back_recommender(rec, to="0002") == "0002"
    with pytest.raises(segue.SegueError, match="must have events that it has not learned from"):
        segue.improve_recommender(rec, progress=False)
    segue.person_in_recommender(rec, "user-2", delete=True)
    found = segue.improve_recommender(rec, settings=quick(epochs=1), progress=False)
    assert (found.learned, found.model) == (0, "0003")
    assert found.deleted > 0


def test_rolling_back_returns_to_what_was_in_use(rec: Path, tmp_path: Path) -> None:
    for name in ("0002", "0003"):  # the second was never in use
        shutil.copytree(rec / "models" / "0001", rec / "models" / name)
    RECOMMEND.use_model(rec, "0003", instead_of="0001")
    segue.copy_recommender(rec, tmp_path / "copy")
    for folder in (rec, tmp_path / "copy"):
        assert segue.roll_back_recommender(folder) == "0001"
        with pytest.raises(segue.SegueError, match=r"is the first\. To use another one, .*: 0002, 0003"):
            segue.roll_back_recommender(folder)
    assert segue.roll_back_recommender(rec, to="0002") == "0002"
    assert segue.roll_back_recommender(rec, to="0003") == "0003"
    assert segue.roll_back_recommender(rec) == "0002"
    assert segue.roll_back_recommender(rec) == "0001"
    values = json.loads((rec / "recommend.json").read_text())
    del values["earlier"]  # as earlier versions wrote it
    (rec / "recommend.json").write_text(json.dumps(values | {"model": "0003"}))
    assert segue.roll_back_recommender(rec) == "0002"


def test_a_demo_learns_from_a_folder(tmp_path: Path) -> None:
    with pytest.raises(segue.SegueError, match="needs real events"):
        prepare_demo(tmp_path / "rec", None, told=lambda _: None)
    for name, rows in (("ratings.csv", events(users=6)), ("movies.csv", items())):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    said: list[str] = []
    prepare_demo(tmp_path / "rec", tmp_path, told=said.append)
    assert "6 users" in said[-1]
    assert segue.recommend(tmp_path / "rec", "user-1", count=2)


def test_learning_again_with_other_settings(rec: Path) -> None:
    """A second model to compare with; settings that nobody gave are not kept, as they hang on the number of events."""
    about = json.loads((rec / "models" / "0001" / "model.json").read_text())
    assert about["given"] == quick().model_dump(exclude_unset=True)
    assert "hide" not in about["given"]
    wrong = command("recommend", "improve", rec, "--set", "heads=3")
    assert wrong.returncode == 2
    assert "heads must divide width" in wrong.stderr
    done = command("recommend", "improve", rec, "--set", "objective=permutation", "--set", "epochs=1", width=200)
    assert done.returncode == 0, done.stderr
    assert "0 new events" in done.stdout
    other = json.loads((rec / "models" / "0002" / "model.json").read_text())
    assert other["settings"]["objective"] == "permutation"
    assert other["given"] == about["given"] | {"objective": "permutation", "epochs": 1}
    found = segue.compare_recommenders(rec, "0001", "0002")
    assert found.asked == found.first_wins + found.second_wins + found.neither > 0


def test_models_are_compared_on_what_neither_has_learned_from(rec: Path) -> None:
    """Also where another one holds back more: what came before the cut of either does not count."""
    (held,) = (
        one["events"] for name, one in segue.describe_recommender(rec).numbers["held_back"].items() if name == "segue"
    )
    few = segue.RecommenderSettings(held_back=0.3, epochs=1)
    found = segue.improve_recommender(rec, settings=few, progress=False)
    assert found.asked <= held
    assert segue.compare_recommenders(rec, "0001", "0002").asked <= held
    cut = json.loads((rec / "models" / "0001" / "model.json").read_text())["held_from"]
    assert cut == sorted(row["time"] for row in events())[int((len(events()) - 1) * 0.9)]


def test_interleaving_is_fair() -> None:
    draw = np.random.default_rng(0)
    teams = Counter(dict(interleaved(["a", "b"], ["a", "c"], draw))["a"] for _ in range(400))
    assert 150 < teams[0] < 250
    both = dict(interleaved([str(n) for n in range(10)], [str(n) for n in range(10, 20)], draw))
    assert Counter(both.values()) == {0: 5, 1: 5}
    assert sign_test(5, 5) == 1.0
    assert sign_test(10, 0) == pytest.approx(2 / 1024)


def test_tables_of_all_kinds(tmp_path: Path) -> None:
    rows = [{"userId": "1", "movieId": "7", "timestamp": "1000"}, {"userId": "", "movieId": "7", "timestamp": "2"}]
    with gzip.open(tmp_path / "events.csv.gz", "wt", newline="") as file:
        writer = csv.DictWriter(file, ["userId", "movieId", "timestamp"])
        writer.writeheader()
        writer.writerows(rows)
    problems: Counter[str] = Counter()
    assert list(read_events(tmp_path / "events.csv.gz", problems)) == [Event(user="1", item="7", time=1000.0)]
    assert sum(problems.values()) == 1
    (tmp_path / "items.jsonl").write_text(json.dumps({"id": 7, "name": "Seven", "genres": "Crime|Drama"}) + "\n")
    (item,) = read_items(tmp_path / "items.jsonl", problems)
    assert item.id == "7"
    assert item.tags == ("Crime", "Drama")
    assert item.text == "Seven. Crime, Drama"
    assert isinstance(to_event({"user": "a", "item": "b", "time": "soon"}, otherwise=0.0), str)
    assert isinstance(to_item({"title": "no id"}), str)
    times = {"1700000000000": 1.7e9, 1.7e9: 1.7e9, "2023-11-14T22:13:20Z": 1.7e9, "7": 7.0}
    for given, seconds in times.items():
        found = to_event({"user": "a", "item": "b", "time": given}, otherwise=0.0)
        assert isinstance(found, Event)
        assert found.time == seconds
    assert isinstance(to_event({"user": "a", "item": "b", "time": "inf"}, otherwise=0.0), str)


def test_items_without_events_and_popularity() -> None:
    assert popularity(np.array([0, 0, 3, 9])).tolist()[0] == 0.0
    assert not come_back(made_histories([{"user": "a", "item": n, "kind": "view", "time": n} for n in range(5)]))


def test_a_recommender_is_never_replaced(learned: Path) -> None:
    with pytest.raises(segue.SegueError, match="must not exist yet"):
        segue.learn_recommender(events(), learned, items=items(), progress=False)


def test_a_damaged_model_is_refused(rec: Path) -> None:
    path = rec / "models" / "0001" / "items.jsonl"
    path.write_text(path.read_text().replace("red-1", "red-X", 1))
    with pytest.raises(segue.SegueError, match=r"items\.jsonl"):
        segue.open_recommender(rec)


def test_a_drawn_softmax_has_the_gradient_of_the_full_one() -> None:
    """With the log-Q correction, the mean over many draws is the gradient of the softmax over all items."""
    draw = torch.Generator().manual_seed(1)
    items, width, rows = 40, 6, 5
    hidden_ND = torch.randn(rows, width, generator=draw, dtype=torch.float64)
    table_VD = torch.randn(items + 1, width, generator=draw, dtype=torch.float64) * 0.3
    bias_V = torch.randn(items + 1, generator=draw, dtype=torch.float64) * 0.1
    bias_V[0] = -1e9  # no item
    targets_N = torch.tensor([1, 2, 2, 30, 40])
    weights_N = torch.tensor([0.1, 0.2, 0.2, 0.3, 0.2], dtype=torch.float64)
    shares_V = torch.rand(items + 1, generator=draw, dtype=torch.float64) + 0.2
    shares_V[0] = 0.0
    shares_V /= shares_V.sum()

    def gradient(*, drawn: int | None) -> torch.Tensor:
        table = table_VD.clone().requires_grad_()
        if drawn is None:
            logits_NV = hidden_ND @ table.T + bias_V
            loss = -(weights_N * logits_NV.log_softmax(dim=1)[torch.arange(rows), targets_N]).sum()
        else:
            drawn_S = torch.multinomial(shares_V, drawn, replacement=True, generator=draw)
            loss = sampled_nll(hidden_ND, table, bias_V, targets_N, weights_N, drawn_S=drawn_S, shares_V=shares_V)
        loss.backward()  # type: ignore[no-untyped-call]
        assert table.grad is not None
        return table.grad

    full = gradient(drawn=None)
    mean = torch.stack([gradient(drawn=400) for _ in range(300)]).mean(dim=0)
    assert float((mean - full).norm() / full.norm()) < 0.02
    uncorrected = torch.full_like(shares_V, 1 / items)  # as if all were drawn alike: another gradient
    drawn_S = torch.multinomial(shares_V, 100_000, replacement=True, generator=draw)
    table = table_VD.clone().requires_grad_()
    sampled_nll(hidden_ND, table, bias_V, targets_N, weights_N, drawn_S=drawn_S, shares_V=uncorrected).backward()  # type: ignore[no-untyped-call]
    assert table.grad is not None
    assert float((table.grad - full).norm() / full.norm()) > 0.05


def test_a_drawn_softmax_learns(histories: Histories) -> None:
    split = split_by_time(histories, held_back=0.1)
    wanted = wanted_events(histories, split.chosen_U, histories.lengths, most=1000, seed=0)
    ranks = {}
    for name, settings in {"drawn": {"epochs": 6, "negatives": 12}, "untaught": {"learning_rate": 1e-9}}.items():
        network = fitted(histories, **settings)
        ranks[name] = quality(ranks_of_network(network, histories, wanted, length=8, repeats=True)).ndcg
    assert ranks["drawn"] > 1.5 * ranks["untaught"]


def test_rows_that_are_left_out_are_told(tmp_path: Path) -> None:
    rows = [*events(users=6), {"user": "", "item": "red-1", "time": 1.0, "kind": "view"}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    few = ["--set", "epochs=1", "--set", "width=8", "--set", "segment=8", "--set", "memory=8"]
    done = command("recommend", "learn", "--events", tmp_path / "events.jsonl", "--out", tmp_path / "rec", *few)
    assert done.returncode == 0, done.stderr
    assert "Rows skipped: 1 (" in done.stdout
