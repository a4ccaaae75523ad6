// The page: one thread, its log, and a socket that streams the events of runs.
//
// All state is on the server, runs included; after each change the page reads the thread again. The
// thread and branch of this tab are in its address, so reloads and second tabs work, and a run
// continues when its tab is closed.

import { byId, count, el, plural, refill, trusted } from "./dom.js";
import { get, post, Socket } from "./api.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { History, reworded, rows } from "./history.js";
import { Live } from "./live.js";
import { Manage } from "./manage.js";
import { Threads } from "./threads.js";

const WHOLE = 1_000_000; // rows: all there are
const LOOK_AGAIN = 3000; // milliseconds between looks for what other programs wrote
const BEFORE_FIRST = "start"; // as a commit: before the first one

const TOAST_MILLISECONDS = 6000;
const CHANGES = ["undo", "redo", "compact", "rename", "delete"]; // not while a run writes
const SEEN = "weft.thread"; // where the browser keeps the thread last looked at

const at = { thread: null, branch: null, head: null, run: null };
let chat;
let live;
let socket;

const history = new History({ actions: { revert } });
const composer = new Composer({ send: (frame) => socket.send(frame), say });
const threads = new Threads({
  onpick: (name) => go(name),
  onhit: (name, id) => go(name, null, id),
  onrestore: (name) => manage.restore(name),
});
const manage = new Manage({
  current: () => at.thread,
  say,
  onrenamed: (old, name) => {
    composer.moveChoice(old, name);
    return go(name, at.branch);
  },
  ondeleted: openAnother,
  onrestored: (name) => go(name),
});

async function start() {
  const table = await get("/api/system-table");
  const annotate = (priority) => (id) =>
    change("/api/annotate", { id, priority }).then(() => focusRow(id));
  const actions = {
    pin: annotate("pinned"),
    skip: annotate("skip"),
    restore: annotate("normal"),
    openFold,
    showAll,
    retry: () => composer.retry(),
  };
  chat = new Chat({ table, actions });
  live = new Live({ chat, table, confirm });
  socket = new Socket("/ws", { onframe: receive, onstate: connection });
  addListeners();
  const models = composer.loadModels(); // an upstream may take seconds
  const list = await threads.load();
  const wanted = readAddress();
  await open(wanted.thread ?? firstThread(list), wanted.branch);
  await models;
  await composer.refresh();
}

/** The thread of a page without an address: the last one read, the sample, or the newest. */
function firstThread(list) {
  const last = localStorage.getItem(SEEN);
  const thread = list.find(({ name }) => name === last) ?? list.find(({ sample }) => sample);
  return (thread ?? list[0])?.name ?? "default";
}

/** What the address says: `#thread=name&branch=name`. */
function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  return { thread: words.get("thread"), branch: words.get("branch") };
}

function go(thread, branch = null, row = null) {
  const words = new URLSearchParams(branch ? { thread, branch } : { thread });
  window.history.pushState(null, "", `#${words}`);
  drawer("threads", false);
  return open(thread, branch, row);
}

async function open(thread, branch = null, row = null) {
  Object.assign(at, { thread, branch });
  running(null); // until the server says otherwise
  composer.release();
  localStorage.setItem(SEEN, thread);
  await reload();
  watch();
  if (row) focusRow(row, false);
}

/** The open thread is gone: show the newest of the others. */
async function openAnother(deleted) {
  const list = await threads.load(null);
  const other = list.find(({ name }) => name !== deleted);
  await go(other?.name ?? "default");
}

function focusRow(id, preventScroll = true) {
  document.querySelector(`#conversation [data-id="${CSS.escape(id)}"]`)?.focus({ preventScroll });
}

/** Read the thread again and show it, up to the commit `until`; a slower answer to an older
 *  question is left out. */
async function reload(follow = true, until = null) {
  if (at.run !== null && until === null) {
    watch(); // the rows alone are not all there is: the run's frames come with the answer
    return;
  }
  const query = { thread: at.thread, branch: at.branch };
  const last = at.whole === at.thread ? WHOLE : null;
  const model = composer.chosen(at.thread);
  const turn = (reload.turn = (reload.turn ?? 0) + 1);
  try {
    const [view, log] = await Promise.all([
      get("/api/thread", { ...query, last, until, model }),
      get("/api/log", query),
    ]);
    if (turn !== reload.turn) return;
    Object.assign(at, { branch: view.branch, head: view.head });
    live.reset();
    chat.show(view, follow);
    head(view);
    history.show(view.name, view.branch, log.commits);
    threads.load(view.name);
  } catch (error) {
    if (turn !== reload.turn) return;
    chat.clear();
    chat.fail(error.message);
  }
}

/** Another tab or program may have gone on; nothing moves if none did. */
async function catchUp() {
  if (at.run || !at.thread || document.hidden) return;
  const now = await get("/api/head", { thread: at.thread, branch: at.branch }).catch(() => null);
  if (!now || at.run) return;
  if (now.head !== at.head) await reload(chat.atEnd());
  else if (now.threads !== at.threads) threads.load();
  at.threads = now.threads;
}

function head(view) {
  document.title = `${view.name} · Weft`;
  Object.assign(document.body.dataset, { thread: view.name, branch: view.branch });
  byId("title").textContent = view.name;
  const branches = view.branches.map((name) =>
    el("option", { value: name, selected: name === view.branch }, name),
  );
  refill(byId("branch"), ...branches);
  composer.show(view, at.thread, view.branch);
  const isRunning = at.run !== null;
  byId("compact").disabled = isRunning || !view.rows.length;
  byId("undo").disabled = isRunning || !view.head;
  byId("redo").disabled = isRunning || view.new; // what was undone to nothing can be redone
  for (const name of ["rename", "delete"]) byId(name).disabled = isRunning || view.new;
}

/** Ask for a change, then show what it made of the thread. */
async function change(path, body = {}) {
  try {
    const answer = await post(path, { thread: at.thread, branch: at.branch, ...body });
    await reload(false);
    say(answer.message);
    return answer;
  } catch (error) {
    say(error.message, true);
    return null;
  }
}

function revert(id) {
  return change("/api/revert", { id });
}

function showAll() {
  at.whole = at.thread;
  return reload(false);
}

function openFold(commit) {
  drawer("log", true);
  history.open(commit);
}

/** One line at the foot of the page that a screen reader hears; `action` is a button in it. */
function say(words, isError = false, action = null) {
  const toast = byId("toast");
  const follow = chat?.atEnd();
  toast.textContent = words ?? "";
  toast.className = isError ? "error" : "";
  if (action) toast.append(el("button", { type: "button", onclick: action.run }, action.label));
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (toast.textContent = ""), action?.shows ?? TOAST_MILLISECONDS);
  if (follow) chat.toEnd(); // the line takes its room from the conversation
}

// The compaction dialog: nothing happens before the reader has seen what would.

async function previewCompaction() {
  const dialog = byId("compact-dialog");
  refill(byId("preview"), el("p", { class: "muted" }, "Working out what would go …"));
  byId("compact-commit").disabled = true;
  if (!dialog.open) dialog.showModal();
  try {
    const plan = await post("/api/compact", { ...compactionOptions(), preview: true });
    refill(
      byId("preview"),
      el("p", { class: "big" }, `${count(plan.before)} → ${count(plan.after)} tokens`),
      el("p", { class: "inout" }, inAndOut(plan)),
      rows("Taken out", plan.removed, "removed"),
      rows("Put in", plan.added, "added"),
      rows("Kept by pins", plan.pins, "pins"),
      ...reworded(plan.reworded),
    );
    byId("compact-commit").disabled = !plan.removed.length;
    if (!plan.removed.length)
      byId("preview").append(el("p", {}, "Nothing would be taken out: the thread fits already."));
  } catch (error) {
    refill(byId("preview"), el("p", { class: "error" }, error.message));
  }
}

/** What a compaction does, in one sentence. */
function inAndOut({ removed, added, pins }) {
  const tokens = (list) => plural(
    list.reduce((sum, row) => sum + row.tokens, 0),
    "token",
  );
  const goes = (number) => (number === 1 ? "goes" : "go");
  const out = `${plural(removed.length, "message")} (${tokens(removed)}) ${goes(removed.length)} out`;
  const put = added.length
    ? `${plural(added.length, "summary", "summaries")} (${tokens(added)}) ${goes(added.length)} in`
    : "nothing goes in for it";
  const kept = pins.length ? `; ${plural(pins.length, "pinned message")} among them stay` : "";
  return `${out}, ${put}${kept}.`;
}

function compactionOptions() {
  const budget = Number.parseInt(byId("budget").value, 10);
  return { thread: at.thread, branch: at.branch, budget: Number.isNaN(budget) ? null : budget };
}

async function commitCompaction() {
  byId("compact-dialog").close();
  const made = await change("/api/compact", compactionOptions());
  if (made) chat.toCompaction();
}

// The stream. Frames are handled one after another, because some have to read the thread first.

let handled = Promise.resolve();

function receive(frame) {
  handled = handled.then(() => handle(frame)).catch((error) => console.error(error));
  return handled;
}

function handle(frame) {
  if (typeof frame !== "object" || frame === null) return undefined;
  if (frame.type === "runs") return threads.mark(frame.runs);
  if (frame.type === "started") composer.began(frame.request); // wherever the reader is by now
  if (frame.thread !== undefined && frame.thread !== at.thread) return undefined;
  if (frame.branch !== undefined && frame.branch !== at.branch) return undefined;
  if (live.receive(frame)) return undefined;
  const take = {
    watching: () => join(frame),
    started: () => began(frame),
    message_complete: () => ended(frame),
    interrupted: () => ended(frame),
    error: () => (frame.scope === "frame" ? refused(frame) : ended(frame)),
    compaction_required: () => composer.ask(frame),
  }[frame.type];
  return take?.();
}

/** Look at this thread's runs; the answer is `watching`. */
function watch() {
  if (at.branch) socket.send({ type: "watch", thread: at.thread, branch: at.branch });
}

/** The server tells what runs here: show the thread as it was before the run, then the run. */
async function join(state) {
  if (!state.run) {
    const isOver = at.run !== null;
    running(null);
    if (isOver) await reload();
    return;
  }
  running(state.run);
  await reload(true, state.base ?? BEFORE_FIRST);
  for (const frame of state.frames) live.receive(frame);
  chat.toEnd();
}

async function began(frame) {
  running(frame.run);
  if (at.head !== frame.base) await reload(true, frame.base ?? BEFORE_FIRST);
  chat.hideRetry();
  chat.toEnd();
}

/** The server did not take a frame: the text stays in the box. */
function refused(frame) {
  composer.release();
  say(frame.message, true);
}

/** What the run came to is in the store: the answer, or an attempt with its reason. */
async function ended(frame) {
  const words = live.finish();
  const isStopped = frame.type === "interrupted";
  running(null);
  byId("live").textContent = isStopped ? "Stopped." : (frame.message ?? words);
  await reload();
  const isTold = document.querySelector("#conversation > .attempt:not(.old)") !== null;
  if (frame.type === "error" && !isTold) chat.fail(frame.message);
  chat.toEnd();
}

function running(run) {
  at.run = run;
  composer.running(run !== null);
  document.body.classList.toggle("running", run !== null);
  for (const name of CHANGES) byId(name).disabled ||= run !== null;
}

function interrupt() {
  socket.send({ type: "interrupt", thread: at.thread, branch: at.branch });
}

function confirm(compact) {
  socket.send({ type: "confirm", thread: at.thread, branch: at.branch, compact });
}

/** A run goes on without us; once the connection is back, `watch` tells how far it is. */
function connection(state) {
  byId("offline").hidden = state === "open";
  if (state === "open") {
    watch();
    catchUp();
  } else {
    composer.release();
  }
}

async function newThread(event) {
  event.preventDefault();
  const name = byId("new-name").value.trim();
  if (!name) return;
  byId("new-name").value = "";
  await go(name);
  byId("words").focus();
}

async function newBranch(event) {
  event.preventDefault();
  const name = byId("branch-name").value.trim();
  byId("branch-dialog").close();
  if (!name) return;
  if (await change("/api/branch", { name })) await go(at.thread, name);
}

/** On a narrow screen the lists lie over the conversation; wide ones show them always. */
function drawer(side, open) {
  const is = document.body.classList.toggle(`show-${side}`, open);
  byId(`toggle-${side}`).setAttribute("aria-expanded", String(is));
}

function addListeners() {
  byId("stop").addEventListener("click", interrupt);
  byId("branch").addEventListener("change", (event) => go(at.thread, event.target.value));
  byId("new-thread").addEventListener("submit", newThread);
  byId("new-branch").addEventListener("click", () => byId("branch-dialog").showModal());
  byId("branch-form").addEventListener("submit", newBranch);
  byId("undo").addEventListener("click", () => change("/api/undo", { turn: true }));
  byId("redo").addEventListener("click", () => change("/api/redo", { turn: true }));
  byId("compact").addEventListener("click", previewCompaction);
  byId("compact-again").addEventListener("click", previewCompaction);
  byId("compact-commit").addEventListener("click", commitCompaction);
  for (const button of document.querySelectorAll("[data-close]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
  for (const side of ["threads", "log"]) {
    byId(`toggle-${side}`).addEventListener("click", () => drawer(side));
    document
      .querySelector(`[data-drawer=${side}]`)
      .addEventListener("click", () => drawer(side, false));
  }
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const side of ["threads", "log"]) drawer(side, false);
  });
  addEventListener("focus", catchUp);
  setInterval(catchUp, LOOK_AGAIN);
  addEventListener("popstate", () => {
    const { thread, branch } = readAddress();
    if (thread) open(thread, branch);
  });
}

start().catch((error) => {
  trusted(byId("conversation"), "");
  byId("conversation").append(
    el(
      "li",
      { class: "system-message red", role: "alert" },
      `The page could not start: ${error.message}`,
    ),
  );
});

/** For tests and for the console: hand the page a frame as if the server had sent it. */
export { receive };
