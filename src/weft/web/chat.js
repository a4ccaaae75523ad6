// The conversation: rows as they are stored, and the answer as it streams.
// A tool's call and its result are one panel, found by the call's id, whether they come from the
// store or over the socket.

import { byId, el, plural, refill, trusted } from "./dom.js";
import { post } from "./api.js";
import { present, skipNote } from "./system.js";

const NEAR = 120; // pixels from the bottom within which the view follows the stream
const EXCERPT = 90;
const COMPACTED = "compact_boundary";
const SPEAKERS = {
  user: "You",
  assistant: "Assistant",
  system: "System",
  developer: "System",
  tool: "Tool",
};

export class Chat {
  /** `actions`: {pin, skip, restore} for a row, {openFold} for a commit, {showAll}. */
  constructor({ table, actions }) {
    this.table = table;
    this.actions = actions;
    this.list = byId("conversation");
    this.live = byId("live");
    this.clear();
  }

  clear() {
    this.panels = new Map();
    this.blocks = new Map();
    this.said = [];
    this.notes = [];
    refill(this.list);
  }

  /** Show a thread as the server compiled it; where the reader stands, unless `follow`. */
  show(view, follow) {
    const scroll = byId("scroll").scrollTop;
    this.clear();
    if (view.earlier) this.list.append(this.earlier(view.earlier));
    for (const row of view.rows) this.list.append(...this.compaction(row), this.row(row));
    if (!view.rows.length) this.list.append(emptyThread());
    this.settlePanels("unanswered", "No result was recorded.");
    if (follow) this.toEnd();
    else byId("scroll").scrollTop = scroll;
  }

  earlier(number) {
    const words = `Show ${plural(number, "earlier message")}`;
    return el(
      "li",
      { class: "earlier" },
      el("button", { type: "button", class: "quiet", onclick: this.actions.showAll }, words),
    );
  }

  /** The card of the compaction that put this row in, above the row. */
  compaction(row) {
    if (!row.fold) return [];
    const { before, after } = row.fold;
    const compact_metadata = { pre_tokens: before, post_tokens: after };
    const card = this.card({ type: "system", subtype: COMPACTED, compact_metadata });
    return card ? [card] : [];
  }

  row(row) {
    const panels = row.parts.filter(
      (part) => part.type === "result" && this.panels.has(part.call_id),
    );
    for (const part of panels) this.finishTool(part.call_id, part.content, part.is_error);
    const rest = row.parts.filter((part) => !panels.includes(part) && part.type !== "checkpoint");
    if (!rest.length) return el("li", { class: "row merged", "data-id": row.id, hidden: true });
    const body = el("div", { class: "body" }, ...rest.map((part) => this.part(part)));
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
    const told = row.parts.every(({ type }) => ["reminder", "checkpoint"].includes(type));
    const speaker = told ? "Weft" : (SPEAKERS[row.role] ?? row.role); // the loop's own words
    const name = row.kind === "summary" ? "Summary" : speaker;
    const badge = { pinned: "pinned", important: "important", skip: "left out" }[row.priority];
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
          row.priority === "skip" ? "Bring back" : "Unpin",
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
        `${plural(dropped, "message")} folded here`,
      ),
      body,
      el(
        "button",
        { type: "button", class: "quiet", onclick: () => this.actions.openFold(commit) },
        "What was dropped, and take back",
      ),
    );
  }

  part(part) {
    const make = {
      text: () => trusted(el("div", { class: "prose" }), part.html),
      thinking: () => thinking(part.text),
      call: () => this.startTool(part.id, part.name, part.input),
      result: () => this.orphan(part),
      note: () => el("p", { class: "note" }, part.text),
      reminder: () => el("p", { class: "note" }, part.text),
    }[part.type];
    return make ? make() : el("p", { class: "note" }, part.type);
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

  /** Nothing spins where nothing runs. */
  settlePanels(state, words) {
    for (const panel of this.panels.values()) {
      if (!panel.classList.replace("running", state)) continue;
      panel.querySelector(".state").setAttribute("aria-label", state);
      panel.querySelector(".result").textContent = words;
    }
  }

  orphan(part) {
    const panel = this.startTool(part.call_id, "result", {});
    this.finishTool(part.call_id, part.content, part.is_error);
    return panel;
  }

  /** Take one frame of the stream; true if it was one. */
  receive(frame) {
    const take = {
      user_message: () => this.userSaid(frame),
      text_delta: () => this.grow(frame.id, "text", frame.text),
      thinking_delta: () => this.grow(frame.id, "thinking", frame.text),
      rendered: () => this.settle(frame.id, frame.html, frame.length),
      tool_start: () => this.callTool(frame),
      tool_end: () => this.finishTool(frame.id, frame.content, frame.is_error),
      system: () => this.system(frame),
    }[frame.type];
    if (!take) return false;
    const follow = this.atEnd();
    take();
    if (follow) this.toEnd();
    return true;
  }

  callTool(frame) {
    this.closeBlocks(); // the next step may use their ids again
    this.liveBody().append(this.startTool(frame.id, frame.name, frame.input));
  }

  closeBlocks() {
    for (const block of this.blocks.values()) if (block.html) this.said.push(block.text);
    this.blocks.clear();
  }

  userSaid(frame) {
    this.list.querySelector(".empty")?.remove();
    this.notes = [];
    const body = el("div", { class: "body" }, trusted(el("div", { class: "prose" }), frame.html));
    this.list.append(
      el(
        "li",
        { class: "row user" },
        el("header", { class: "who" }, el("span", { class: "name" }, "You")),
        body,
      ),
    );
    this.answer = null;
  }

  liveBody() {
    if (!this.answer?.isConnected) {
      this.answer = el("div", { class: "body" });
      const name = el("header", { class: "who" }, el("span", { class: "name" }, "Assistant"));
      this.list.append(el("li", { class: "row assistant streaming" }, name, this.answer));
    }
    return this.answer;
  }

  grow(id, kind, text) {
    if (!this.blocks.has(id)) {
      const block = kind === "text" ? streamedText() : streamedThinking();
      this.blocks.set(id, block);
      this.liveBody().append(block.node);
    }
    const block = this.blocks.get(id);
    block.text += text;
    block.tail.textContent = block.text.slice(block.settled);
  }

  settle(id, html, length) {
    const block = this.blocks.get(id);
    if (!block?.html) return;
    block.settled = length;
    trusted(block.html, html);
    block.tail.textContent = block.text.slice(length);
  }

  /** Show a system event, or log why not. */
  system(event) {
    const box = this.card(event);
    if (!box) {
      console.log(skipNote(event?.subtype));
      return;
    }
    if (box.dataset.subtype === COMPACTED)
      this.list.querySelector('[data-subtype="status"]')?.remove(); // it ran; now it is done
    this.list.append(box);
    this.notes.push(box);
    this.answer = null;
  }

  /** What the run said besides its messages; a compaction has its own place among the rows. */
  remarks() {
    const passing = [COMPACTED, "status"];
    return this.notes.filter((box) => !passing.includes(box.dataset.subtype));
  }

  card(event) {
    const shown = present(this.table, event);
    if (!shown) return null;
    const look = this.table.looks[shown.kind];
    const prose = el("div", { class: "prose" }, shown.text);
    const icon = shown.text.startsWith(shown.icon)
      ? null
      : el("span", { class: "icon", "aria-hidden": "true" }, shown.icon);
    const box = el(
      "li",
      {
        class: `system-message ${look.tone}`,
        "data-subtype": shown.subtype,
        role: "note",
        "aria-label": look.title,
      },
      icon,
      prose,
    );
    post("/api/render", { text: shown.text }).then(
      ({ html }) => trusted(prose, html),
      () => {},
    );
    return box;
  }

  /** The run ended: nothing spins any more, and a reader's screen hears the answer once. */
  finish(words) {
    this.settlePanels("failed", "No result: the run ended first.");
    this.closeBlocks();
    this.live.textContent = words ?? this.said.join("\n");
    this.said = [];
    this.list.querySelectorAll(".streaming").forEach((row) => row.classList.remove("streaming"));
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
    this.answer = null;
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

function streamedText() {
  const html = el("div", { class: "prose" });
  const tail = el("span", { class: "tail" });
  return { node: el("div", { class: "streamed" }, html, tail), html, tail, text: "", settled: 0 };
}

function streamedThinking() {
  const node = thinking("");
  return { node, html: null, tail: node.querySelector("pre"), text: "", settled: 0 };
}

function thinking(text) {
  return el("details", { class: "thinking" }, el("summary", {}, "Thinking"), el("pre", {}, text));
}

function emptyThread() {
  return el(
    "li",
    { class: "empty" },
    el("h2", {}, "Nothing said yet"),
    el(
      "p",
      {},
      "Write below. Every message becomes a commit that you can look up, fold and take back.",
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
