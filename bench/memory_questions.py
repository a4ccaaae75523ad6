"""Questions about long conversations, in other words than the answers, for `bench/memory.py`.

A conversation is either a chat of two people over several weeks, or a coding session. Each question
has one to three evidence turns, and the conversation has other turns about the same subject, facts
of the same kind about the other person, and small talk. The subjects for tuning (`DEV`) and for the
published figures (`TEST`) are different ones: nothing is tuned on `TEST`.
"""

import json
import random
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from weft.model import Message, Text, ToolCall, ToolResult


class Subject(Struct, frozen=True):
    """A subject of a chat.

    `evidence` are the turns that a question needs; one may be a pair of a question by the other
    person and a short answer. `other` is what the other person says of themselves. `chatter` are
    turns that only mention the subject. `{v}` is replaced by a value, `{me}` and `{you}` by names.
    """

    question: str
    evidence: tuple[str | tuple[str, str], ...]
    values: tuple[str, ...]
    other: str
    chatter: tuple[str, ...]


class Question(Struct, frozen=True):
    """A question, and the texts of the turns that answer it."""

    text: str
    evidence: tuple[str, ...]


class Turn(Struct, frozen=True):
    """One message of a conversation and its time."""

    message: Message
    created: datetime


class Conversation(Struct, frozen=True):
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


DEV = (
    Subject(
        "Which animal did {me} adopt, and what name was chosen?",
        (
            "We finally adopted a {v} from the shelter last weekend.",
            ("Have you picked a name for the little one?", "Yes, {v2}, after my grandmother."),
        ),
        ("greyhound", "tabby kitten", "parrot", "dachshund", "rabbit"),
        "Our old cat sleeps all day on the sofa.",
        (
            "The vet says shots are due every year.",
            "I saw a cute puppy in the park today.",
            "Cleaning fur off the sofa is a full-time job.",
        ),
    ),
    Subject(
        "Which instrument lesson is {me} taking?",
        ("I started {v} lessons on Tuesday, my fingers hurt already.",),
        ("cello", "banjo", "accordion", "oboe", "harp"),
        "I gave up the piano when I was ten.",
        (
            "That concert was so loud.",
            "The radio played the same song twice.",
            "Practice makes perfect, they say.",
        ),
    ),
    Subject(
        "What reason did {me} have to give notice at work?",
        ("I handed in my notice because {v}.",),
        (
            "the commute was eating three hours a day",
            "they wanted me to relocate to Leeds",
            "my manager kept cancelling our reviews",
            "the night shifts made me ill",
        ),
        "My boss finally approved the extra budget.",
        (
            "Work has been hectic this week.",
            "The office coffee is terrible.",
            "Another meeting that could have been an email.",
        ),
    ),
    Subject(
        "Where did {me} stay on holiday, and which cousins joined the trips?",
        (
            (
                "So where did you two end up staying?",
                "In a tiny cabin near {v}, no internet at all.",
            ),
            "My cousin {v2} came along for the whole trip.",
        ),
        ("Tromso", "Lake Bled", "Cape Breton", "the Azores", "Lofoten"),
        "We just stayed in town in August.",
        (
            "Flights are so expensive right now.",
            "I need to renew my passport soon.",
            "Packing is the worst part of any journey.",
        ),
    ),
    Subject(
        "How much does {me} pay according to the lease that was signed?",
        ("We signed the lease yesterday: {v} a month, heating included.",),
        ("1,240 euros", "980 pounds", "1,575 dollars", "870 euros"),
        "My landlord still has not fixed the boiler.",
        (
            "Moving boxes are everywhere.",
            "The neighbours upstairs are noisy.",
            "I love the view from the kitchen.",
        ),
    ),
    Subject(
        "What should nobody bake for {me}?",
        (
            (
                "Should I bake something with nuts for Saturday?",
                "Please not, {v} sends me straight to the hospital.",
            ),
        ),
        ("even a trace of cashew", "anything with sesame", "shellfish of any kind", "celery"),
        "I could eat pasta every single day.",
        (
            "Lunch was great today.",
            "I tried a new recipe last night.",
            "That bakery smells amazing.",
        ),
    ),
    Subject(
        "Which marathons, trails and other runs of the season did {me} finish?",
        (
            "I crossed the line of the {v} half marathon in just under two hours!",
            "Ran the {v2} trail yesterday, mud up to my knees.",
            "Third medal of the season: the {v3} ten k.",
        ),
        ("Ghent", "Snowdon", "Porto", "Malmo", "Bergen", "Dresden"),
        "I only run when I am late for the bus.",
        (
            "My new shoes give me blisters.",
            "Stretching is boring but needed.",
            "The gym was packed this morning.",
        ),
    ),
    Subject(
        "Which studies at the university did the sister of {me} begin?",
        ("My sister got into {v} at university, she is thrilled.",),
        ("marine biology", "stage design", "actuarial science", "Sanskrit"),
        "My brother dropped out twice before he graduated.",
        (
            "Family dinner was chaos as usual.",
            "Mum called three times today.",
            "Exams are stressful for everyone.",
        ),
    ),
    Subject(
        "When is the appointment for {me}'s teeth?",
        ("The tooth still hurts, my appointment is on {v}.",),
        ("the 14th at half past nine", "Thursday at noon", "the 3rd of May", "Monday at 16:40"),
        "I was at the doctor for a flu shot.",
        (
            "I should drink more water.",
            "Health insurance letters confuse me.",
            "Sleep is the best medicine.",
        ),
    ),
    Subject(
        "What was ordered by {me} for ten years of marriage?",
        ("For our ten years together I ordered {v}, hope it arrives in time.",),
        (
            "a hand-bound photo album",
            "tickets to the opera in Verona",
            "a silver locket",
            "a fountain pen",
        ),
        "I always forget birthdays.",
        (
            "Shops are so full in December.",
            "Wrapping paper costs more than the gift.",
            "The parcel service lost another box.",
        ),
    ),
)

TEST = (
    Subject(
        "Which used car did {me} pick up, and was it grey as in the photos?",
        (
            "I picked up the new wheels today: a used {v}.",
            ("Is it the grey one from the photo?", "No, I went for {v2} in the end."),
        ),
        ("Skoda estate", "Fiat Panda", "Volvo wagon", "Mini convertible"),
        "My bike got a flat tyre again.",
        (
            "Traffic was awful on the ring road.",
            "Petrol prices went up again.",
            "Parking downtown is impossible.",
        ),
    ),
    Subject(
        "Which language's grammar does {me} study at night?",
        ("Two hours of {v} grammar after dinner, my head is spinning.",),
        ("Hungarian", "Swahili", "Icelandic", "Korean", "Basque"),
        "I only remember ten words of my school French.",
        (
            "Evening classes are full of interesting people.",
            "The teacher was late again.",
            "I forgot my notebook on the train.",
        ),
    ),
    Subject(
        "What caused the flooding in {me}'s hall?",
        ("Disaster: {v} gave up overnight and flooded the hall.",),
        ("the washing machine", "the water heater", "a pipe under the sink", "the dishwasher"),
        "We painted the bedroom green.",
        (
            "The plumber is coming when he feels like it.",
            "Home insurance is a mystery to me.",
            "I spent all Sunday cleaning.",
        ),
    ),
    Subject(
        "Who made {me} a marriage proposal, and what is booked for the wedding ceremonies?",
        (
            ("You look happy, any news?", "{v} proposed on the beach and I said yes!"),
            "We booked {v2} for the ceremony next June.",
        ),
        ("Jonas", "Amara", "Luca", "Ingrid", "Tomas"),
        "My cousin's divorce is getting ugly.",
        (
            "I need a new suit for all these parties.",
            "Dancing is not my strength.",
            "The weather in June is always a gamble.",
        ),
    ),
    Subject(
        "Which figure was named to {me} as a salary?",
        (("And, did they name a figure?", "{v} plus a bonus, I nearly fell off my chair."),),
        ("64k", "71,500 a year", "52 thousand", "88k"),
        "I have not had a raise in three years.",
        (
            "The interview lasted four hours.",
            "HR never answers emails.",
            "Their office has a slide, seriously.",
        ),
    ),
    Subject(
        "What has been terrifying {me} since childhood?",
        ("I froze completely on the ladder: {v} terrify me since I was a child.",),
        ("heights", "spiders", "thunderstorms", "clowns"),
        "Horror films just make me laugh.",
        (
            "I slept badly last night.",
            "That documentary was intense.",
            "Children are braver than adults.",
        ),
    ),
    Subject(
        "Which books did {me} finish or close lately, and which one kept the lights on for long?",
        (
            "Finished {v} on the train, cried at the end.",
            "{v2} kept me up until three in the morning.",
            "Just closed {v3}; the last chapter is weak.",
        ),
        ("Middlemarch", "The Overstory", "Piranesi", "Gilead", "Stoner", "Austerlitz"),
        "I have not opened a novel since school.",
        (
            "The library has new opening hours.",
            "My shelf is about to collapse.",
            "Audiobooks are good for long drives.",
        ),
    ),
    Subject(
        "What accident put {me} in a cast for weeks?",
        ("Six weeks in a cast, all because I {v}.",),
        (
            "slipped on the wet stairs",
            "fell off the climbing wall",
            "missed a kerb on the scooter",
            "tripped over the dog's lead",
        ),
        "My back aches after gardening.",
        (
            "The waiting room had magazines from 2009.",
            "Crutches are harder than they look.",
            "Doctors always run late.",
        ),
    ),
    Subject(
        "Which train is {me} going to catch on Friday?",
        ("I am catching the {v} on Friday, so dinner has to be early.",),
        ("18:52 express", "five past seven", "16:17", "20:31 sleeper"),
        "My flight was delayed by six hours.",
        (
            "The station is a building site.",
            "Window seats are always taken.",
            "Rail strikes again, what a surprise.",
        ),
    ),
    Subject(
        "What has {me}'s dad worked as for forty years?",
        ("Dad still goes out every morning at four, forty years as {v}.",),
        ("a baker", "a harbour pilot", "a postman", "a beekeeper"),
        "My mother retired last spring.",
        ("Parents never change.", "We had a long call on Sunday.", "Family recipes are the best."),
    ),
    Subject(
        "What grows in the raised beds of {me}?",
        ("The {v} in the raised bed are up to my knee already.",),
        ("leeks", "artichokes", "broad beans", "sunflowers"),
        "Every plant dies in my care.",
        (
            "It has not rained in weeks.",
            "Snails ate everything last season.",
            "The shed needs a new roof.",
        ),
    ),
)

CODE_DEV = (
    Subject(
        "To which port is the staging postgres bound?",
        ("Note for later: postgres on stage-db-2 is bound to {v}, not the default.",),
        ("6543", "15432", "5439", "7432"),
        "The cache on stage-redis uses the default.",
        ("The staging deploy is green.", "Database migrations take a while."),
    ),
    Subject(
        "Why did tokens look expired on the runners?",
        ("Found it: the runner's clock is in {v}, so the token looks expired.",),
        ("UTC+14", "Pacific time", "a zone without DST"),
        "The upload test is flaky because of the network.",
        ("CI takes eleven minutes now.", "All tests pass locally."),
    ),
    Subject(
        "Do we retry a charge request in the payment client?",
        (("Should charge requests be retried?", "No. {v}; a double charge is worse."),),
        (
            "One attempt, then the queue",
            "Only when the socket never opened",
            "Never automatically, support does it",
        ),
        "The email client retries five times.",
        ("The payment docs are outdated.", "I will look at the client next."),
    ),
    Subject(
        "Which function keeps its listeners and leaks, by the snapshot?",
        ("The heap snapshot points at {v}: its listener is never removed.",),
        ("attachResizeObserver", "subscribe_to_feed", "openPreviewPane", "watch_folder"),
        "renderChart is slow but does not leak.",
        ("Memory looks fine on my machine.", "The profiler needs a restart."),
    ),
    Subject(
        "Who signs off on altering tables of the schema?",
        ("Any ALTER TABLE needs a sign-off by {v} first.",),
        ("Dana from data", "the platform guild", "Okafor", "two DBAs"),
        "Front-end changes need a screenshot.",
        ("The schema diagram is in the wiki.", "Reviews are slow this week."),
    ),
)

CODE_TEST = (
    Subject(
        "Which maximal age do session cookies have?",
        ("I set the cookie's max-age to {v} as legal asked.",),
        ("45 minutes", "twelve hours", "7 days", "90 minutes"),
        "The image cache expires after a month.",
        ("Sessions are stored in redis.", "The cookie banner is ugly."),
    ),
    Subject(
        "What was filling the disks in the outage?",
        ("Post-mortem: {v} filled the disk of the primary.",),
        ("an unrotated audit log", "core dumps of the resizer", "a runaway backup job"),
        "The incident in March was a bad certificate.",
        ("Monday was not fun.", "The status page was down too."),
    ),
    Subject(
        "What do we use since moment was not kept?",
        (("Are we keeping moment?", "It is gone, everything goes through {v} now."),),
        ("luxon", "dayjs", "date-fns", "temporal-polyfill"),
        "lodash stays for now.",
        ("The bundle shrank a bit.", "Dates are always painful."),
    ),
    Subject(
        "Which buckets hold the attachment of a user?",
        ("Attachments go to the bucket {v}, encrypted with the tenant's key.",),
        ("acme-media-eu", "vault-blobs-7", "prod-user-content", "s3-attic"),
        "Logs are shipped to the cold storage.",
        ("Uploads over 2 GB fail.", "Production has been quiet."),
    ),
    Subject(
        "How is the editor turned off in dashboards before QA finishes?",
        ("Turn it off with {v} in the dashboard until QA is done.",),
        ("editor_v3_rollout", "use-prose-mirror", "enableBlockCanvas", "ff.rich_text"),
        "The dark theme has no switch yet.",
        ("QA found two typos.", "The new editor feels fast."),
    ),
    Subject(
        "Which Python versions does the installer no longer check as supported?",
        ("Dropping everything below {v}, the installer checks it.",),
        ("3.10", "3.11", "3.9"),
        "Node 18 reaches its end in April.",
        ("The linter wants newer syntax.", "Typing got much better."),
    ),
)

PEOPLE = ("Maria", "Ben", "Aiko", "Samuel", "Leila", "Viktor", "Noor", "Pedro")
NAMES = ("Pip", "Oma", "Ziggy", "Marlow", "Juno", "Tilda", "Rafael", "Greta")
SMALL_TALK = (
    "Good morning!", "How was your weekend?", "Not much, just tired.", "Ha, that is so true.",
    "I will call you later.", "What a day.", "Same here.", "Did you see the news?",
    "I need more coffee.", "Talk soon!", "That sounds lovely.", "Oh no, what happened?",
    "It rained the whole time.", "Let me know how it goes.", "I am so glad to hear that.",
    "Can you believe it is already Friday?", "We should meet next week.", "Sure, why not.",
    "I had pizza again.", "My phone is almost dead.", "Sorry for the late reply.",
    "What are you up to today?", "I watched a film last night.", "Take care!",
)  # fmt: skip
REMARKS = (
    "I looked at the {0} of the {3}, the {1} is next.",
    "The {0} and the {1} have nothing to do with the {2}.",
    "After the {3} I will clean up what {0} means for {1}.",
    "Please rename {0} to {1} in the {3} docs.",
    "There is a typo: it says {0} where it should say {1} {2}.",
)
VERBS = ("read", "split", "render", "merge", "load", "flush", "parse", "retry", "queue", "sort")
NOUNS = ("invoice", "avatar", "ledger", "basket", "feed", "report", "mailer", "widget", "batch")


def make_chat(seed: int, subjects: Sequence[Subject], length: int = 420) -> Conversation:
    """Two people over several weeks, with questions about one or both of them."""
    chance = random.Random(seed)
    people = chance.sample(PEOPLE, 2)
    moments: list[tuple[float, list[tuple[int, str]]]] = []
    questions: list[Question] = []
    for subject in subjects:
        me = chance.randrange(2)
        names = {"me": people[me], "you": people[1 - me]}
        evidence = _add_subject(chance, subject, me, names, moments)
        questions.append(Question(subject.question.format(**names), tuple(evidence)))
    chatter = [line for subject in subjects for line in subject.chatter] * 3
    while sum(len(turns) for _, turns in moments) < length:
        line = chance.choice(SMALL_TALK if chance.random() < 0.55 else chatter)
        moments.append((chance.random(), [(chance.randrange(2), line)]))
    start, weeks = datetime(2025, 3, 3, 9, tzinfo=UTC), 6
    turns: list[Turn] = []
    for moment, lines in sorted(moments, key=lambda item: item[0]):
        created = start + timedelta(weeks=weeks * moment)
        for person, text in lines:
            role = ("user", "assistant")[person]
            created += timedelta(minutes=1)
            message = Message(role, (Text(text),), name=people[person])
            turns.append(Turn(message, created))
    return Conversation(tuple(turns), tuple(questions))


def _add_subject(
    chance: random.Random,
    subject: Subject,
    me: int,
    names: dict[str, str],
    moments: list[tuple[float, list[tuple[int, str]]]],
) -> list[str]:
    values = chance.sample(subject.values, min(3, len(subject.values)))
    extra = [*values[1:], "", ""]
    if "{v3}" not in str(subject.evidence):
        extra[0] = chance.choice(NAMES)
    filled = {**names, "v": values[0], "v2": extra[0], "v3": extra[1]}
    evidence: list[str] = []
    at = sorted(chance.random() for _ in subject.evidence)
    for moment, turn in zip(at, subject.evidence, strict=True):
        if isinstance(turn, str):
            evidence.append(turn.format(**filled))
            moments.append((moment, [(me, evidence[-1])]))
        else:
            lead, answer = (part.format(**filled) for part in turn)
            evidence.append(answer)
            moments.append((moment, [(1 - me, lead), (me, answer)]))
    moments.append((chance.random(), [(1 - me, subject.other)]))
    return evidence


def make_coding(seed: int, subjects: Sequence[Subject], steps: int = 120) -> Conversation:
    """A coding session: requests, calls, long results and remarks, with questions about remarks."""
    chance = random.Random(seed)
    lines: list[tuple[float, list[Message]]] = []
    questions: list[Question] = []
    for number, subject in enumerate(subjects):
        moments: list[tuple[float, list[tuple[int, str]]]] = []
        evidence = _add_subject(
            chance, subject, chance.randrange(2), {"me": "", "you": ""}, moments
        )
        questions.append(Question(subject.question, tuple(evidence)))
        in_result = number % 2 == 0  # half of the remarks stand in the middle of a long result
        for moment, turns in moments:
            messages: list[Message] = []
            for person, text in turns:
                if in_result and text in evidence and len(turns) == 1:
                    messages += _tool_round(chance, text)
                else:
                    messages.append(Message(("user", "assistant")[person], (Text(text),)))
            lines.append((moment, messages))
        lines += [(chance.random(), [Message("user", (Text(t),))]) for t in subject.chatter]
    lines += [(chance.random(), _tool_round(chance, None)) for _ in range(steps)]
    words = sorted({word for subject in subjects for word in _words(subject)})
    for _ in range(steps):
        first, second, third = chance.sample(words, 3)
        remark = chance.choice(REMARKS).format(first, second, third, chance.choice(NOUNS))
        role = chance.choice(("user", "assistant"))
        lines.append((chance.random(), [Message(role, (Text(remark),))]))
    start = datetime(2025, 3, 3, 9, tzinfo=UTC)
    turns: list[Turn] = []
    for moment, messages in sorted(lines, key=lambda item: item[0]):
        for message in messages:
            created = start + timedelta(hours=60 * moment, seconds=len(turns))
            turns.append(Turn(message, created))
    return Conversation(tuple(turns), tuple(questions))


def _words(subject: Subject) -> set[str]:
    """The longer words of a question and its evidence, for remarks that only mention them."""
    text = f"{subject.question} {subject.evidence} {' '.join(subject.chatter)}"
    return {word for word in re.findall("[a-z]+", text) if len(word) > 3}


def _tool_round(chance: random.Random, remark: str | None) -> list[Message]:
    verb, noun = chance.choice(VERBS), chance.choice(NOUNS)
    path = f"src/{noun}s/{verb}_{noun}.py"
    call = ToolCall(f"c{chance.getrandbits(40):x}", "Read", json.dumps({"path": path}))
    body = [
        f"def {chance.choice(VERBS)}_{chance.choice(NOUNS)}({chance.choice(NOUNS)}_id):  # {n}"
        if n % 4 == 0
        else f"    {chance.choice(NOUNS)} = {chance.choice(VERBS)}({chance.choice(NOUNS)}, {n})"
        for n in range(chance.randint(20, 60))
    ]
    if remark is not None:
        body.insert(len(body) // 2, f"# {remark}")
    return [
        Message("assistant", (Text(f"Let me {verb} the {noun} code."), call)),
        Message("user", (ToolResult(call.id, (Text("\n".join(body)),)),)),
    ]
