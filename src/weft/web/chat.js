// The stored conversation: rows, failed attempts, and reports of runs. A tool call and its result
// share one panel, found by the call's id. `live.js` draws what streams.

import { byId, el, plural, refill, trusted } from "./dom.js";
import { COMPACTED, finishedCards } from "./cards.js";

const NEAR = 120; // pixels from the bottom within which the view follows the stream
const EXCERPT = 90;
const STOPPED = "stopped"; // the reason of an attempt that a person stopped
const SPEAKERS = {
  user: "You",
  assistant: "Assistant",
  system: "System",
  developer: "System",
  tool: "Tool",
};

export class Chat {
  /** `actions`: {pin, skip, restore} for a row, {openFold} for a commit, {showAll}, {retry}. */
  constructor({ table, actions }) {
    this.table = table;
    this.actions = actions;
    this.list = byId("conversation");
    this.clear();
    this.followRuns();
  }

  /** During a run, keep the end in view if the reader is there. */
  followRuns() {
    let isAtEnd = true;
    byId("scroll").addEventListener("scroll", () => (isAtEnd = this.atEnd()), { passive: true });
    const follow = () => document.body.classList.contains("running") && isAtEnd && this.toEnd();
    new ResizeObserver(follow).observe(this.list);
  }

  clear() {
    this.panels = new Map();
    refill(this.list);
  }

  /** Show a compiled thread; `follow` scrolls to its end, else the position stays. */
  show(view, follow) {
    const scroll = byId("scroll").scrollTop;
    this.clear();
    if (view.earlier) this.list.append(this.earlier(view.earlier));
    for (const row of view.rows) {
      this.list.append(...this.compaction(row), this.row(row));
      this.list.append(...this.afterRow(view, row));
    }
    if (!view.rows.length) this.list.append(emptyThread());
    this.settlePanels("unanswered", "No result was recorded.");
    if (follow) this.toEnd();
    else byId("scroll").scrollTop = scroll;
  }

  earlier(number) {
    const label = `Show ${plural(number, "earlier message")}`;
    return el(
      "li",
      { class: "earlier" },
      el("button", { type: "button", class: "quiet", onclick: this.actions.showAll }, label),
    );
  }

  /** The card of the compaction that added this row; shown above it. */
  compaction(row) {
    if (!row.fold) return [];
    const { before, after } = row.fold;
    const compact_metadata = { pre_tokens: before, post_tokens: after };
    const event = { type: "system", subtype: COMPACTED, compact_metadata };
    return finishedCards(this.table, [event]).map(({ node }) => node);
  }

  /** What is shown after a row: attempts to answer it, and reports of runs. */
  afterRow(view, row) {
    const isLast = row === view.rows.at(-1);
    const attempts = view.attempts.filter(({ after }) => after === row.id);
    const remarks = view.remarks.filter(({ after }) => after === row.id);
    const isOpen = isLast && view.unanswered;
    const nodes = attempts.map((attempt, index) =>
      isOpen && index === attempts.length - 1
        ? this.lastAttempt(attempt, !view.running)
        : this.oldAttempt(attempt),
    );
    if (isOpen && !attempts.length && !view.running) nodes.push(this.unanswered());
    return [...nodes, ...remarks.flatMap(({ events }) => this.reports(events))];
  }

  /** What a finished run reported. A compaction has its own card among the rows; this one links
   *  to it. */
  reports(events) {
    return finishedCards(this.table, events).map(({ node }) => {
      if (node.dataset.subtype === COMPACTED) {
        node.dataset.subtype = "compaction_remark";
        node.append(this.button("Show where", () => this.toCompaction(), "quiet"));
      }
      return node;
    });
  }

  /** The newest attempt at an unanswered message: the part that arrived, the reason, and Retry. */
  lastAttempt(attempt, mayRetry) {
    const reason = el("div", { class: "prose" }, describe(attempt));
    const icon = el("span", { class: "icon", "aria-hidden": "true" }, "✗");
    const retry = mayRetry ? this.button("Retry", this.actions.retry) : null;
    const tone = attempt.reason === STOPPED ? "grey" : "red";
    const box = el(
      "div",
      { class: `system-message ${tone}`, role: "alert" },
      tone === "red" ? icon : null,
      reason,
      retry,
    );
    return el("li", { class: `attempt ${attempt.state}` }, ...this.partial(attempt), box);
  }

  /** An earlier attempt: one line that opens. */
  oldAttempt(attempt) {
    const line = el("summary", {}, describe(attempt));
    return el(
      "li",
      { class: `attempt old ${attempt.state}` },
      el("details", {}, line, ...this.partial(attempt)),
    );
  }

  /** The part of an answer that arrived. */
  partial(attempt) {
    if (!attempt.parts.length) return [];
    const name = el("span", { class: "name" }, "Assistant");
    const badge = el("span", { class: "badge" }, "not finished");
    const body = el("div", { class: "body" }, ...attempt.parts.map((part) => this.part(part)));
    return [el("header", { class: "who" }, name, badge), body];
  }

  unanswered() {
    return el(
      "li",
      { class: "attempt none" },
      el(
        "div",
        { class: "system-message grey" },
        el("div", { class: "prose" }, "No answer yet."),
        this.button("Ask now", this.actions.retry),
      ),
    );
  }

  button(label, run, kind = null) {
    return el("button", { type: "button", class: kind, onclick: () => run() }, label);
  }

  /** A run has started, so nothing can be retried now. */
  hideRetry() {
    for (const button of this.list.querySelectorAll(".attempt button")) button.remove();
    this.list.querySelector(".attempt.none")?.remove();
  }

  row(row) {
    const panels = row.parts.filter(
      (part) => part.type === "result" && this.panels.has(part.call_id),
    );
    for (const part of panels) this.finishTool(part.call_id, part.content, part.is_error);
    const shown = row.parts.filter((part) => !panels.includes(part) && part.type !== "checkpoint");
    if (!shown.length) return el("li", { class: "row merged", "data-id": row.id, hidden: true });
    const body = el("div", { class: "body" }, ...shown.map((part) => this.part(part)));
    return el(
      "li",
      {
        class: `row ${side(row.role)} ${row.kind} ${row.priority}`,
        "data-id": row.id,
        tabindex: -1,
      },
      this.head(row),
      row.fold ? this.fold(row, body) : body,
    );
  }

  head(row) {
    const isReminder = row.parts.every(({ type }) => ["reminder", "checkpoint"].includes(type));
    const speaker = isReminder ? "Weft" : (SPEAKERS[row.role] ?? row.role); // the agent loop wrote it
    const name = row.kind === "summary" ? "Summary" : speaker;
    const badge = { pinned: "pinned", important: "important", skip: "skipped" }[row.priority];
    return el(
      "header",
      { class: "who" },
      el("span", { class: "name" }, name),
      badge ? el("span", { class: "badge" }, badge) : null,
      el("span", { class: "tokens" }, plural(row.tokens, "token")),
      el("span", { class: "acts" }, ...this.acts(row)),
    );
  }

  acts(row) {
    const act = (label, run, hint) =>
      el(
        "button",
        { type: "button", class: "quiet", title: hint, onclick: () => run(row.id) },
        label,
      );
    if (row.priority === "pinned" || row.priority === "skip") {
      return [
        act(
          row.priority === "skip" ? "Include again" : "Unpin",
          this.actions.restore,
          "Back to normal",
        ),
      ];
    }
    return [
      act("Pin", this.actions.pin, "Every compaction keeps this message as it is"),
      act("Skip", this.actions.skip, "Leave this message out of what the model sees"),
    ];
  }

  fold(row, body) {
    const { dropped, commit } = row.fold;
    return el(
      "details",
      { class: "fold", open: true },
      el(
        "summary",
        {},
        `${plural(dropped, "message")} summarised here`,
      ),
      body,
      el(
        "button",
        { type: "button", class: "quiet", onclick: () => this.actions.openFold(commit) },
        "Show what was removed, or revert",
      ),
    );
  }

  part(part) {
    const make = {
      text: () => trusted(el("div", { class: "prose" }), part.html),
      thinking: () => this.thinking(part.text),
      call: () => this.startTool(part.id, part.name, part.input),
      result: () => this.resultWithoutCall(part),
      note: () => el("p", { class: "note" }, part.text),
      reminder: () => el("p", { class: "note" }, part.text),
    }[part.type];
    return make ? make() : el("p", { class: "note" }, part.type);
  }

  thinking(text) {
    return el("details", { class: "thinking" }, el("summary", {}, "Thinking"), el("pre", {}, text));
  }

  startTool(id, name, input) {
    const text = typeof input === "string" ? input : JSON.stringify(input, null, 2);
    const panel = el(
      "details",
      { class: "tool running", "data-call": id },
      el(
        "summary",
        {},
        el("span", { class: "state", role: "img", "aria-label": "running" }),
        el("code", { class: "tool-name" }, name),
        el("span", { class: "excerpt" }, excerpt(input)),
      ),
      el("h4", {}, "Input"),
      el("pre", { class: "input" }, text),
      el("h4", { class: "result-title" }, "Result"),
      el("pre", { class: "result" }, "Running …"),
    );
    this.panels.set(id, panel);
    return panel;
  }

  finishTool(id, content, isError) {
    const panel = this.panels.get(id);
    if (!panel) return false;
    panel.classList.replace("running", isError ? "failed" : "done");
    panel.querySelector(".state").setAttribute("aria-label", isError ? "failed" : "done");
    panel.querySelector(".result-title").textContent = isError ? "Error" : "Result";
    panel.querySelector(".result").textContent = content || "(nothing)";
    return true;
  }

  /** Mark panels that still look running: nothing runs any more. */
  settlePanels(state, text) {
    for (const panel of this.panels.values()) {
      if (!panel.classList.replace("running", state)) continue;
      panel.querySelector(".state").setAttribute("aria-label", state);
      panel.querySelector(".result").textContent = text;
    }
  }

  resultWithoutCall(part) {
    const panel = this.startTool(part.call_id, "result", {});
    this.finishTool(part.call_id, part.content, part.is_error);
    return panel;
  }

  fail(message) {
    const icon = el("span", { class: "icon", "aria-hidden": "true" }, "✗");
    this.list.append(
      el(
        "li",
        { class: "system-message red", role: "alert" },
        icon,
        el("div", { class: "prose" }, message),
      ),
    );
    this.toEnd();
  }

  atEnd() {
    const view = byId("scroll");
    return view.scrollHeight - view.scrollTop - view.clientHeight < NEAR;
  }

  /** Bring the newest compaction into view. */
  toCompaction() {
    const cards = this.list.querySelectorAll(`[data-subtype="${COMPACTED}"]`);
    cards[cards.length - 1]?.scrollIntoView({ block: "center" });
  }

  toEnd() {
    const view = byId("scroll");
    view.scrollTop = view.scrollHeight;
  }
}

/** Why there is no answer, in one sentence. */
function describe({ reason, status, state, model }) {
  const isPartial = state === "partial";
  if (reason === STOPPED && isPartial)
    return "Stopped. This part of the answer is kept here, but it is not sent to models.";
  if (reason === STOPPED) return "Stopped before an answer came.";
  const what = isPartial ? "The answer broke off" : `${model ?? "The model"} did not answer`;
  return `${what}: ${reason ?? "no reason was recorded"}${status ? ` (${status})` : ""}`;
}

function emptyThread() {
  return el(
    "li",
    { class: "empty" },
    el("h2", {}, "No messages yet"),
    el(
      "p",
      {},
      "Write below. Every message becomes a commit that you can search, compact and undo.",
    ),
  );
}

function excerpt(input) {
  if (typeof input === "string") return input.slice(0, EXCERPT);
  const first = Object.values(input ?? {}).find((value) =>
    ["string", "number"].includes(typeof value),
  );
  return String(first ?? "")
    .replace(/\s+/g, " ")
    .slice(0, EXCERPT);
}

function side(role) {
  if (role === "tool") return "results";
  return Object.hasOwn(SPEAKERS, role) ? role : "other";
}
