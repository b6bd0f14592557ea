"""Prompts: of a wanted length whose prefixes are shared as wanted, words without meaning; or given.

What a file gives is sent to the target and kept nowhere.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any, Final

from longpole.errors import UsageError
from longpole_engine.load.arrivals import Turn, objects

_TEXTS: Final = {
    "en": """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government
number night point home water room mother area money story fact month lot right study book
eye job word business issue side kind head house service friend father power hour game line
end member law car city
""",
    "de": """
Zeit Jahr Leute Weg Tag Sache Leben Kind Welt Schule Familie Gruppe Land Frage Hand Teil Woche
Arbeit Regierung Nacht Punkt Wasser Zimmer Geld Geschichte Monat Recht Buch Wort Haus Freund
Kraft Stunde Spiel Ende Stadt
""",
    "ru": """
время год люди день жизнь ребёнок мир школа семья группа страна вопрос рука часть неделя работа
ночь вода комната деньги история месяц право книга слово дом друг сила час игра конец город
""",
    "ar": """
وقت سنة ناس طريق يوم شيء حياة طفل عالم مدرسة عائلة مجموعة بلد سؤال يد جزء أسبوع عمل ليل نقطة ماء
غرفة مال قصة شهر حق كتاب كلمة بيت صديق قوة ساعة لعبة نهاية مدينة
""",
    "hi": """
समय साल लोग रास्ता दिन चीज़ जीवन बच्चा दुनिया स्कूल परिवार समूह देश सवाल हाथ हिस्सा सप्ताह काम रात पानी कमरा
पैसा कहानी महीना किताब शब्द घर दोस्त शक्ति घंटा खेल अंत शहर
""",
    "zh": """
时间 年 人们 道路 日子 事情 生活 孩子 世界 学校 家庭 小组 国家 问题 手
部分 星期 工作 夜晚 水 房间 钱 故事
月 书 词 家 朋友 力量 小时 游戏 结束 城市
""",
}
_WORDS: Final = {language: text.split() for language, text in _TEXTS.items()}
"""Common words: of English ones most tokenizers make one token each, its blank included."""
LANGUAGES: Final = tuple(_WORDS)


_POOL_SIZE: Final = 8_192
_NUM_LEAD: Final = 6
"""Words by which pieces differ; what follows them may be alike."""


def text(turn: Turn, num_tokens: int, unique: str, language: str = "en") -> str:
    """A prompt of about ``num_tokens`` tokens.

    Args:
        turn: equal ``blocks`` give equal text at equal places.
        num_tokens: words, in English each about one token, in other scripts several.
        unique: name of what no other prompt shall share.
        language: of :data:`LANGUAGES`.
    """
    blocks: Sequence[int | str] = turn.blocks or (f"alone {unique}",)
    size = turn.block_tokens or -(-num_tokens // len(blocks))
    words: list[str] = []
    for block in blocks[:-1]:
        words += _piece(f"block {block}", size, language)
    num_last = num_tokens - len(words)
    if turn.block_tokens and num_last < 1:  # what the last block differs in shall be there
        num_last = min(_NUM_LEAD, num_tokens)
        del words[num_tokens - num_last :]
    words += _piece(f"block {blocks[-1]}", max(0, num_last), language)
    return " ".join(words[:num_tokens])


def _piece(name: str, size: int, language: str) -> Sequence[str]:
    """Words of a name: a few of its own, then some of the pool. A generator is made for none."""
    number = int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
    known, pool = _WORDS[language], _pool(language)
    lead = []
    for _ in range(_NUM_LEAD):
        number, at = divmod(number, len(known))
        lead.append(known[at])
    begin = number % _POOL_SIZE
    found = [*lead, *pool[begin : begin + size]]
    while len(found) < size:
        found += pool[: size - len(found)]
    return found[:size]


@cache
def _pool(language: str) -> Sequence[str]:
    return Random("pool").choices(_WORDS[language], k=_POOL_SIZE)  # noqa: S311 - no secret


def recorded(path: Path) -> list[dict[str, Any]]:
    """The requests of a JSON Lines file, as bodies for a chat completion.

    A line has ``messages``, or ``prompt``, a text that a user says; whatever else it has
    (``temperature``, ``max_tokens``, ``tools``) is asked, too.

    Raises:
        UsageError: no such file, nothing in it, or a line that asks nothing.
    """
    found = []
    for number, line in objects(path):
        asked = {name: value for name, value in line.items() if name != "prompt"}
        if isinstance(line.get("prompt"), str):
            asked["messages"] = [{"role": "user", "content": line["prompt"]}]
        if not _is_asked(asked.get("messages")):
            raise UsageError(
                f"{path}, line {number}: needs 'prompt', or 'messages' that begin with a text"
            )
        found.append(asked)
    if not found:
        raise UsageError(f"{path}: no prompts in it")
    return found


def _is_asked(messages: object) -> bool:
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(isinstance(each, dict) and "role" in each for each in messages)
        and isinstance(messages[0].get("content"), str)
    )
