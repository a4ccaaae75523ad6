"""Regression tests for search and recall: scripts without spaces, and the order of the results."""

from collections.abc import Collection
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given, settings, strategies as st

import weft
from weft.store import Store

ALPHABETS = {
    "latin": "abcdefghijklmnopqrstuvwxyzäöüñçéøßł",
    "greek": "αβγδεζηθικλμνξοπρστυφχψωάέή",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщыьэюяіїє",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "devanagari": "अआइईउऊएऐओकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह",
    "chinese": "用写数据库连接失败重试配置文件服务器日志错误修改测试通过",
    "japanese": "ひらがなカタカナ漢字変更設定起動エラー々",
    "halfwidth katakana": "ｱｲｳｴｵｶｷｸｹｺｻｼｽｾｿ",
    "korean": "가나다라마바사아자차카타파하배포설정오류값",
    "thai": "กขคงจฉชซญดตถทนบปผพฟมยรลวสหอ",
    "fullwidth": "ａｂｃｄｅｆｇＡＢＣ",
    "digits": "0123456789",
    "enclosed": "㊀㊁㊂①②",
}
WITHOUT_SPACES = ("chinese", "japanese", "halfwidth katakana", "korean", "thai")


def words(names: Collection[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(names)).flatmap(
        lambda name: st.text(ALPHABETS[name], min_size=2, max_size=6)
    )


MIXED = st.lists(words(ALPHABETS), min_size=2, max_size=4).map("".join)


@pytest.mark.parametrize(
    "query",
    [
        '如何界定"impactful的engineer"',
        "guess값 보다 number가",
        "APIを使う",
        "用Python写",
        "Docker로 배포",
        "ใช้Pythonเขียน",
        "v2.0版本",
        "getUserById를 호출",
        "ｱﾌﾟﾘAPI",
        "㊀abc",
    ],
)
def test_a_word_joined_to_another_script_is_found(store: Store, query: str) -> None:
    t = weft.open(store)
    t.user("something about the weather")
    t.user(f"we talked about {query} yesterday")
    t.assistant("OK")
    assert [hit.text for hit in t.search(query)] == [f"we talked about {query} yesterday"]
    assert t.recall(query)[0].text == f"we talked about {query} yesterday"
    assert query in t.recall_page(query).body
    assert weft.search(store, query)[0].text == f"we talked about {query} yesterday"


@given(
    text=MIXED, spaced=words(ALPHABETS.keys() - set(WITHOUT_SPACES)), joined=words(WITHOUT_SPACES)
)
@settings(max_examples=60, deadline=None)
def test_any_mixture_of_scripts_is_found(text: str, spaced: str, joined: str) -> None:
    with weft.open() as t:
        t.user(f"about {text} yesterday")
        t.user(f"and {spaced}{joined} too")
        for query in (text, normalize("NFD", text), f"{text} yesterday"):
            assert t.search(query)[0].text == f"about {text} yesterday"
            assert t.recall(query)
            assert t.recall_page(query).body
        for query in (spaced + joined, joined + spaced, spaced, joined):
            assert f"and {spaced}{joined} too" in [hit.text for hit in t.search(query)]
            t.recall_page(query)


@pytest.mark.parametrize("query", ["Python", "写", "用", "用户", "getUser", "数据"])
def test_the_parts_of_a_mixed_word_are_words(store: Store, query: str) -> None:
    t = weft.open(store)
    t.user("用Python写getUserById用户数据")
    assert len(t.search(query)) == 1


def fill(store: Store) -> weft.Thread:
    t = weft.open(store, "a")
    with t.batch():
        for number in range(60):
            t.user(f"phoenix {number} " + "filler words here " * (number % 7))
    other = weft.open(store, "b")
    other.user("start phoenix in background")
    other.assistant("phoenix " + "and a long log of the server " * 30)
    edited = t.user("an old phoenix text")
    t.edit(edited, "a new phoenix text")
    return t


@pytest.mark.parametrize("options", [{}, {"role": "user"}, {"path": "phoenix"}, {"regex": True}])
def test_fewer_hits_are_the_first_of_more_hits(store: Store, options: dict[str, object]) -> None:
    t = fill(store)
    for search in (t.search, lambda *a, **k: weft.search(store, *a, **k)):
        longest = [hit.id for hit in search("phoenix", 90, **options)]
        assert len(longest) == len(set(longest))
        for limit in (1, 3, 20, 50, 61):
            assert [hit.id for hit in search("phoenix", limit, **options)] == longest[:limit]


def test_what_a_person_typed_comes_before_long_tool_output(store: Store) -> None:
    fill(store)
    assert weft.search(store, "start phoenix")[0].text == "start phoenix in background"
    assert weft.search(store, "phoenix")[0].text != "phoenix " + "and a long log " * 30


def test_equally_good_hits_are_listed_newest_first(store: Store) -> None:
    t = weft.open(store)
    for number in range(10):
        t.user(f"phoenix number{number}")
    assert t.search("phoenix", 1)[0].text == "phoenix number9"
    assert weft.search(store, "phoenix", 2)[1].text == "phoenix number8"


def test_an_edited_message_is_one_hit_in_its_current_version(store: Store) -> None:
    t = fill(store)
    (hit,) = (hit for hit in t.search("phoenix", 100) if hit.text.endswith("phoenix text"))
    assert (hit.text, hit.live) == ("a new phoenix text", True)
    (old,) = t.search("old phoenix text", 1)
    assert (old.text, old.live) == ("an old phoenix text", False)


def test_a_deleted_thread_has_no_hits(store: Store) -> None:
    fill(store).delete()
    texts = [hit.text for hit in weft.search(store, "phoenix", 10)]
    assert len(texts) == 2


def test_a_search_waits_for_everything_that_was_loaded(tmp_path: Path) -> None:
    t = weft.open(tmp_path / "bulk.db")
    with t.batch():
        for number in range(20_000):
            t.user(f"message {number} needle{number}")
    assert t.search("needle19999")[0].text == "message 19999 needle19999"
    assert t.search("needle0")[0].text == "message 0 needle0"
    t.close()
    reopened = weft.open(tmp_path / "bulk.db")
    assert len(reopened.search("needle7777")) == 1
    reopened.close()
