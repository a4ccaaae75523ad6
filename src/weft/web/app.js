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

const ALL_ROWS = 1_000_000;
const POLL_MILLISECONDS = 3000; // how often the page looks for changes by other programs
const BEFORE_FIRST = "start"; // the value of `until` for the state before the first commit

const TOAST_MILLISECONDS = 6000;
const CHANGES = ["undo", "redo", "compact", "rename", "delete"]; // not while a run writes
const LAST_THREAD = "weft.thread"; // the storage key of the thread that was open last

const current = { thread: null, branch: null, head: null, run: null };
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
  current: () => current.thread,
  say,
  onrenamed: (old, name) => {
    composer.moveChoice(old, name);
    return go(name, current.branch);
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
  const address = readAddress();
  await open(address.thread ?? firstThread(list), address.branch);
  await models;
  await composer.refresh();
}

/** The thread to open if the address names none: the last one open, the sample, or the newest. */
function firstThread(list) {
  const last = localStorage.getItem(LAST_THREAD);
  const thread = list.find(({ name }) => name === last) ?? list.find(({ sample }) => sample);
  return (thread ?? list[0])?.name ?? "default";
}

/** The thread and branch in the address: `#thread=name&branch=name`. */
function readAddress() {
  const params = new URLSearchParams(location.hash.slice(1));
  return { thread: params.get("thread"), branch: params.get("branch") };
}

function go(thread, branch = null, row = null) {
  const params = new URLSearchParams(branch ? { thread, branch } : { thread });
  window.history.pushState(null, "", `#${params}`);
  drawer("threads", false);
  return open(thread, branch, row);
}

async function open(thread, branch = null, row = null) {
  Object.assign(current, { thread, branch });
  running(null); // until the server says otherwise
  composer.release();
  localStorage.setItem(LAST_THREAD, thread);
  await reload();
  watch();
  if (row) focusRow(row, false);
}

/** The open thread was deleted: show the newest of the others. */
async function openAnother(deleted) {
  const list = await threads.load(null);
  const other = list.find(({ name }) => name !== deleted);
  await go(other?.name ?? "default");
}

function focusRow(id, preventScroll = true) {
  document.querySelector(`#conversation [data-id="${CSS.escape(id)}"]`)?.focus({ preventScroll });
}

/** Read the thread again and show it, up to the commit `until`. If reloads overlap, only the
 *  newest one is shown. */
async function reload(follow = true, until = null) {
  if (current.run !== null && until === null) {
    watch(); // its answer also has the frames of the run, which the rows lack
    return;
  }
  const query = { thread: current.thread, branch: current.branch };
  const last = current.whole === current.thread ? ALL_ROWS : null;
  const model = composer.chosen(current.thread);
  const number = (reload.number = (reload.number ?? 0) + 1);
  try {
    const [view, log] = await Promise.all([
      get("/api/thread", { ...query, last, until, model }),
      get("/api/log", query),
    ]);
    if (number !== reload.number) return;
    Object.assign(current, { branch: view.branch, head: view.head });
    live.reset();
    chat.show(view, follow);
    showHead(view);
    history.show(view.name, view.branch, log.commits);
    threads.load(view.name);
  } catch (error) {
    if (number !== reload.number) return;
    chat.clear();
    chat.fail(error.message);
  }
}

/** Show what another tab or program wrote; changes nothing if none did. */
async function catchUp() {
  if (current.run || !current.thread || document.hidden) return;
  const query = { thread: current.thread, branch: current.branch };
  const state = await get("/api/head", query).catch(() => null);
  if (!state || current.run) return;
  if (state.head !== current.head) await reload(chat.atEnd());
  else if (state.threads !== current.threads) threads.load();
  current.threads = state.threads;
}

function showHead(view) {
  document.title = `${view.name} · Weft`;
  Object.assign(document.body.dataset, { thread: view.name, branch: view.branch });
  byId("title").textContent = view.name;
  const branches = view.branches.map((name) =>
    el("option", { value: name, selected: name === view.branch }, name),
  );
  refill(byId("branch"), ...branches);
  composer.show(view, current.thread, view.branch);
  const isRunning = current.run !== null;
  byId("compact").disabled = isRunning || !view.rows.length;
  byId("undo").disabled = isRunning || !view.head;
  byId("redo").disabled = isRunning || view.new; // redo works in an empty thread too
  for (const name of ["rename", "delete"]) byId(name).disabled = isRunning || view.new;
}

/** Make a change, then show the thread again. */
async function change(path, body = {}) {
  try {
    const answer = await post(path, { thread: current.thread, branch: current.branch, ...body });
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
  current.whole = current.thread;
  return reload(false);
}

function openFold(commit) {
  drawer("log", true);
  history.open(commit);
}

/** Show one line at the bottom, which screen readers announce; `action` is a button in it. */
function say(text, isError = false, action = null) {
  const toast = byId("toast");
  const follow = chat?.atEnd();
  toast.textContent = text ?? "";
  toast.className = isError ? "error" : "";
  if (action) toast.append(el("button", { type: "button", onclick: action.run }, action.label));
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (toast.textContent = ""), action?.shows ?? TOAST_MILLISECONDS);
  if (follow) chat.toEnd(); // the line makes the conversation shorter
}

// The compaction dialog: shows a preview before anything changes.

async function previewCompaction() {
  const dialog = byId("compact-dialog");
  refill(byId("preview"), el("p", { class: "muted" }, "Preparing the preview …"));
  byId("compact-commit").disabled = true;
  if (!dialog.open) dialog.showModal();
  try {
    const plan = await post("/api/compact", { ...compactionOptions(), preview: true });
    refill(
      byId("preview"),
      el("p", { class: "big" }, `${count(plan.before)} → ${count(plan.after)} tokens`),
      el("p", { class: "inout" }, describeChange(plan)),
      rows("Removed", plan.removed, "removed"),
      rows("Added", plan.added, "added"),
      rows("Kept by pins", plan.pins, "pins"),
      ...reworded(plan.reworded),
    );
    byId("compact-commit").disabled = !plan.removed.length;
    if (!plan.removed.length)
      byId("preview").append(el("p", {}, "Nothing would be removed: the thread already fits."));
  } catch (error) {
    refill(byId("preview"), el("p", { class: "error" }, error.message));
  }
}

/** What a compaction does, in one sentence. */
function describeChange({ removed, added, pins }) {
  const tokens = (list) => plural(
    list.reduce((sum, row) => sum + row.tokens, 0),
    "token",
  );
  const out = `Removes ${plural(removed.length, "message")} (${tokens(removed)})`;
  const put = added.length
    ? `adds ${plural(added.length, "summary", "summaries")} (${tokens(added)})`
    : "adds nothing";
  const pinned = pins.length ? ` Keeps ${plural(pins.length, "pinned message")}.` : "";
  return `${out}, ${put}.${pinned}`;
}

function compactionOptions() {
  const budget = Number.parseInt(byId("budget").value, 10);
  const { thread, branch } = current;
  return { thread, branch, budget: Number.isNaN(budget) ? null : budget };
}

async function commitCompaction() {
  byId("compact-dialog").close();
  const result = await change("/api/compact", compactionOptions());
  if (result) chat.toCompaction();
}

// The stream. Frames are handled one after another, because some have to read the thread first.

let lastHandled = Promise.resolve();

function receive(frame) {
  lastHandled = lastHandled.then(() => handle(frame)).catch((error) => console.error(error));
  return lastHandled;
}

function handle(frame) {
  if (typeof frame !== "object" || frame === null) return undefined;
  if (frame.type === "runs") return threads.mark(frame.runs);
  if (frame.type === "started") composer.began(frame.request); // even if another thread is open now
  if (frame.thread !== undefined && frame.thread !== current.thread) return undefined;
  if (frame.branch !== undefined && frame.branch !== current.branch) return undefined;
  if (live.receive(frame)) return undefined;
  const handler = {
    watching: () => join(frame),
    started: () => began(frame),
    message_complete: () => ended(frame),
    interrupted: () => ended(frame),
    error: () => (frame.scope === "frame" ? refused(frame) : ended(frame)),
    compaction_required: () => composer.ask(frame),
  }[frame.type];
  return handler?.();
}

/** Ask for the frames of this thread's runs; the server answers with `watching`. */
function watch() {
  if (current.branch) socket.send({ type: "watch", thread: current.thread, branch: current.branch });
}

/** The answer to `watch`: show the thread as it was before the run, then the run's frames. */
async function join(state) {
  if (!state.run) {
    const isOver = current.run !== null;
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
  if (current.head !== frame.base) await reload(true, frame.base ?? BEFORE_FIRST);
  chat.hideRetry();
  chat.toEnd();
}

/** The server refused a frame: the text stays in the box. */
function refused(frame) {
  composer.release();
  say(frame.message, true);
}

/** The run is over. Its answer, or its attempt with the reason, is in the store now. */
async function ended(frame) {
  const text = live.finish();
  const isStopped = frame.type === "interrupted";
  running(null);
  byId("live").textContent = isStopped ? "Stopped." : (frame.message ?? text);
  await reload();
  const isShown = document.querySelector("#conversation > .attempt:not(.old)") !== null;
  if (frame.type === "error" && !isShown) chat.fail(frame.message);
  chat.toEnd();
}

function running(run) {
  current.run = run;
  composer.running(run !== null);
  document.body.classList.toggle("running", run !== null);
  for (const name of CHANGES) byId(name).disabled ||= run !== null;
}

function interrupt() {
  socket.send({ type: "interrupt", thread: current.thread, branch: current.branch });
}

function confirm(compact) {
  socket.send({ type: "confirm", thread: current.thread, branch: current.branch, compact });
}

/** Runs go on without a connection. When it is back, `watch` gets what was missed. */
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
  if (await change("/api/branch", { name })) await go(current.thread, name);
}

/** Open or close a list. On a narrow screen it covers the conversation; a wide one shows both. */
function drawer(side, open) {
  const isOpen = document.body.classList.toggle(`show-${side}`, open);
  byId(`toggle-${side}`).setAttribute("aria-expanded", String(isOpen));
}

function addListeners() {
  byId("stop").addEventListener("click", interrupt);
  byId("branch").addEventListener("change", (event) => go(current.thread, event.target.value));
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
  setInterval(catchUp, POLL_MILLISECONDS);
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
