"""Conversations and questions in six languages, for the measure of recall (`memory_recall.py`).

The words of a question stand in another form than in the answer (other cases, particles, word
order), and other turns mention the same subject. One turn in three is long: the fact stands in the
middle of other sentences.
"""

import random
from datetime import UTC, datetime, timedelta

from memory_questions import Conversation, Question, Turn
from msgspec import Struct

from weft.model import Message, Text


class Fact(Struct, frozen=True):
    """A question, the sentence that answers it, and a sentence that only mentions the subject."""

    question: str
    answer: str
    mention: str


def _facts(*rows: tuple[str, str, str]) -> tuple[Fact, ...]:
    return tuple(Fact(*row) for row in rows)


class Language(Struct, frozen=True):
    """Facts and small talk in one language; `space` stands between two sentences."""

    facts: tuple[Fact, ...]
    small_talk: tuple[str, ...]
    space: str = " "


LANGUAGES = {
    "en": Language(
        _facts(
            (
                "How high is the rent we agreed on?",
                "The landlord agreed to rent it for 940 a month.",
                "Renting in this town is a nightmare.",
            ),
            (
                "Who repairs the heating?",
                "Ms Halvorsen is going to repair the heater in the cellar.",
                "Heating costs go up every winter.",
            ),
            (
                "When do the children start swimming lessons?",
                "Swimming starts on 4 March, both kids have a place in the lesson.",
                "I swam every day as a child.",
            ),
            (
                "Which medicines does grandmother not tolerate?",
                "Grandma's doctor struck penicillin off the list of medicine, she gets a rash.",
                "The medicine cabinet needs tidying.",
            ),
            (
                "What did the insurers decide about the damaged roof?",
                "The insurer pays 60 % of the roof, the damage is older than the contract.",
                "Insurers never answer the phone.",
            ),
            (
                "Where are the keys of the garden shed hidden?",
                "The shed key hangs behind the blue watering can.",
                "Our garden is full of weeds.",
            ),
        ),
        (
            "The weather was lovely.",
            "I will call you in the evening.",
            "Did you sleep well?",
            "That was a long day.",
            "I have to go shopping later.",
            "The bus was late again.",
            "Let us talk tomorrow.",
            "I read an interesting article.",
        ),
    ),
    "de": Language(
        _facts(
            (
                "Wie hoch ist die vereinbarte Miete?",
                "Der Vermieter vereinbarte mit uns 940 Euro Miete im Monat.",
                "Die Mieten in der Stadt sind verrückt.",
            ),
            (
                "Wer repariert die Heizungen im Keller?",
                "Frau Halvorsen kümmert sich um die Reparatur der Kellerheizung.",
                "Heizen wird jeden Winter teurer.",
            ),
            (
                "Wann fangen die Schwimmkurse der Kinder an?",
                "Der Schwimmkurs beginnt am 4. März, beide Kinder haben einen Platz.",
                "Als Kind war ich jeden Tag schwimmen.",
            ),
            (
                "Welches Medikament verträgt die Großmutter nicht?",
                "Bei Großmutters Medikamenten wurde Penicillin gestrichen, sie bekommt Ausschlag.",
                "Der Schrank mit den Medikamenten ist unordentlich.",
            ),
            (
                "Was entschied die Versicherung über das beschädigte Dach?",
                "Die Versicherer zahlen 60 % vom Dach, die Beschädigung ist älter als der Vertrag.",
                "Bei Versicherungen geht nie jemand ans Telefon.",
            ),
            (
                "Wo hängt der Schlüssel zum Gartenhaus?",
                "Die Schlüssel des Gartenhauses hängen hinter der blauen Gießkanne.",
                "Der Garten ist voller Unkraut.",
            ),
        ),
        (
            "Das Wetter war herrlich.",
            "Ich rufe dich am Abend an.",
            "Hast du gut geschlafen?",
            "Das war ein langer Tag.",
            "Später muss ich noch einkaufen.",
            "Der Bus kam wieder zu spät.",
            "Lass uns morgen reden.",
            "Ich habe etwas Interessantes gelesen.",
        ),
    ),
    "ru": Language(
        _facts(
            (
                "Какую арендную плату мы согласовали за квартиру?",
                "Хозяин квартиры согласен на аренду за 940 в месяц.",
                "Аренда в этом городе просто кошмар.",
            ),
            (
                "Кто ремонтирует отопление в подвале?",
                "Ремонтом отопления подвала займётся госпожа Халворсен.",
                "Зимой отопление всегда дорожает.",
            ),
            (
                "Когда у детей начинаются занятия по плаванию?",
                "Плавание начнётся 4 марта, обоих детей записали на занятие.",
                "В детстве я плавал каждый день.",
            ),
            (
                "Какие лекарства нельзя давать бабушке?",
                "Врач вычеркнул у бабушки пенициллин из списка лекарств, от него сыпь.",
                "Шкаф с лекарствами надо разобрать.",
            ),
            (
                "Что решила страховая компания о повреждённой крыше?",
                "Страховщики оплатят 60 % крыши, повреждение старше договора.",
                "В страховой никто не берёт трубку.",
            ),
            (
                "Где спрятан ключ от садового сарая?",
                "Ключи от сарая в саду висят за синей лейкой.",
                "Наш сад весь зарос сорняками.",
            ),
        ),
        (
            "Погода была чудесная.",
            "Вечером я тебе позвоню.",
            "Ты хорошо спал?",
            "Это был длинный день.",
            "Мне ещё надо в магазин.",
            "Автобус опять опоздал.",
            "Давай поговорим завтра.",
            "Я прочитала интересную статью.",
        ),
    ),
    "ko": Language(
        _facts(
            (
                "합의한 월세가 얼마였지?",
                "집주인이 월세를 94만 원으로 하기로 합의해 줬어.",
                "이 동네 월세는 정말 악몽이야.",
            ),
            (
                "지하실 보일러는 누가 고치나요?",
                "김하늘 기사님이 지하실의 보일러를 고쳐 주기로 했어.",
                "겨울마다 보일러 요금이 올라.",
            ),
            (
                "아이들의 수영 수업은 언제 시작해?",
                "수영은 3월 4일부터고 아이들 둘 다 수업에 자리가 있대.",
                "어릴 때는 매일 수영했는데.",
            ),
            (
                "할머니께서 못 드시는 약이 무엇인가요?",
                "의사가 할머니의 약에서 페니실린을 뺐어, 발진이 생긴대.",
                "약 상자를 정리해야 해.",
            ),
            (
                "보험사에서 지붕 파손을 어떻게 결정했지?",
                "보험사가 지붕은 60%만 준대, 파손이 계약보다 오래됐다고.",
                "보험사는 전화를 절대 안 받아.",
            ),
            (
                "정원 창고의 열쇠는 어디에 있어?",
                "창고 열쇠를 파란 물뿌리개 뒤에 걸어 뒀어, 정원 쪽이야.",
                "정원이 잡초로 가득해.",
            ),
        ),
        (
            "날씨가 참 좋았어.",
            "저녁에 전화할게.",
            "잘 잤어?",
            "정말 긴 하루였어.",
            "이따가 장을 봐야 해.",
            "버스가 또 늦었어.",
            "내일 이야기하자.",
            "재미있는 글을 읽었어.",
        ),
    ),
    "zh": Language(
        _facts(
            (
                "我们谈好的房租是多少？",
                "房东同意每个月的房租算940块。",
                "这个城市租房真是噩梦。",
            ),
            (
                "地下室的暖气由谁来修理？",
                "何素珍师傅答应来修地下室那套暖气。",
                "每年冬天暖气费都涨。",
            ),
            (
                "孩子们的游泳课什么时候开始？",
                "游泳从三月四号开始，两个孩子都报上了课。",
                "我小时候每天都去游泳。",
            ),
            (
                "外婆不能吃哪一种药？",
                "医生把青霉素从外婆的药单里划掉了，她会起疹子。",
                "药箱该整理一下了。",
            ),
            (
                "屋顶损坏的事，保险公司怎么决定的？",
                "保险公司只赔屋顶的六成，说损坏比合同早。",
                "保险公司的电话永远打不通。",
            ),
            (
                "花园小屋的钥匙藏在哪里？",
                "小屋钥匙挂在蓝色浇水壶后面，就在花园里。",
                "我们的花园长满了杂草。",
            ),
        ),
        (
            "天气真好。",
            "晚上给你打电话。",
            "你睡得好吗？",
            "今天真是漫长的一天。",
            "等会儿还要去买菜。",
            "公交车又晚点了。",
            "我们明天再聊吧。",
            "我读了一篇有意思的文章。",
        ),
        "",
    ),
    "ja": Language(
        _facts(
            (
                "合意した家賃はいくらでしたか。",
                "大家さんが家賃は月に94000円で合意してくれた。",
                "この町の家賃は本当にひどい。",
            ),
            (
                "地下室の暖房を修理するのは誰ですか。",
                "暖房の修理は春山さんが地下室まで来てやってくれる。",
                "冬はいつも暖房代が上がる。",
            ),
            (
                "子どもたちの水泳教室はいつ始まりますか。",
                "水泳は三月四日からで、子どもは二人とも教室に入れた。",
                "子どもの頃は毎日泳いでいた。",
            ),
            (
                "おばあさんに飲ませてはいけない薬は何ですか。",
                "先生がおばあさんの薬からペニシリンを外した、発疹が出るから。",
                "薬箱を片付けないと。",
            ),
            (
                "壊れた屋根について保険会社はどう決めましたか。",
                "保険会社は屋根の六割だけ払う、壊れたのは契約より前だそうだ。",
                "保険会社は電話に出たことがない。",
            ),
            (
                "庭の物置の鍵はどこに隠してありますか。",
                "物置の鍵は青いじょうろの後ろに掛けてある。",
                "うちの庭は雑草だらけだ。",
            ),
        ),
        (
            "天気がよかったですね。",
            "夜に電話します。",
            "よく眠れましたか。",
            "長い一日だった。",
            "あとで買い物に行かないと。",
            "バスがまた遅れた。",
            "また明日話そう。",
            "面白い記事を読んだ。",
        ),
        "",
    ),
}


def make_talk(seed: int, language: Language, length: int = 240) -> Conversation:
    """Two people over six weeks; a third of the turns with a fact or a mention are long."""
    chance = random.Random(seed)
    lines = [fact.answer for fact in language.facts]
    mentions = [fact.mention for fact in language.facts]
    lines += [chance.choice(mentions) for _ in range(length // 4)]
    lines += [chance.choice(language.small_talk) for _ in range(length - len(lines))]
    chance.shuffle(lines)
    filler = (*language.small_talk, *mentions)
    start = datetime(2025, 3, 3, 9, tzinfo=UTC)
    turns: list[Turn] = []
    for number, line in enumerate(lines):
        text = line
        if number % 3 == 0:
            around = [chance.choice(filler) for _ in range(chance.randint(10, 30))]
            around.insert(chance.randrange(len(around)), line)
            text = language.space.join(around)
        message = Message(("user", "assistant")[number % 2], (Text(text),))
        turns.append(Turn(message, start + timedelta(hours=4 * number)))
    questions = [Question(fact.question, (fact.answer,)) for fact in language.facts]
    return Conversation(tuple(turns), tuple(questions))
