// One tool call: a line with its main argument, which opens to the input and the result.

import { count, el, refill } from "./dom.js";
import { get } from "./api.js";
import { ansiNodes, hasAnsi } from "./ansi.js";
import { mediaNode } from "./attachments.js";

const EXCERPT = 120;

export class ToolPanel {
  /** `part`: {id, name, input, main?, result?}; `address()` names the thread and branch. */
  constructor(part, address) {
    this.address = address;
    this.state = el("span", { class: "state", role: "img" });
    this.name = el("code", { class: "tool-name" });
    this.excerpt = el("span", { class: "excerpt" });
    this.input = el("pre", { class: "input" });
    this.title = el("p", { class: "part-title result-title" });
    this.result = el("pre", { class: "result" });
    this.media = el("div", {});
    this.more = el("button", { type: "button", class: "quiet more", onclick: () => this.showAll() });
    this.node = el(
      "details",
      { class: "tool", "data-call": part.id, "data-key": `call:${part.id}` },
      el("summary", {}, this.state, this.name, this.excerpt),
      el("p", { class: "part-title" }, "Input"),
      this.input,
      this.title,
      this.result,
      this.media,
    );
    this.update(part);
  }

  /** Show what is known about the call now. Only what has changed is written. */
  update(part) {
    this.part = part;
    const { input, result } = part;
    setText(this.name, part.name);
    setText(this.excerpt, part.main ?? excerpt(input));
    setText(this.input, typeof input === "string" ? input : JSON.stringify(input, null, 2));
    if (!result) {
      this.setState(part.running ? "running" : "unanswered");
      setText(this.result, part.running ? "Running …" : "No result was recorded.");
      this.more.remove();
      return;
    }
    this.setState(result.is_error ? "failed" : "done");
    if (!this.isWhole) setOutput(this.result, result.content || "(nothing)");
    const media = JSON.stringify(result.media ?? []);
    if (media !== this.mediaJson)
      refill(this.media, ...(result.media ?? []).map((part) => mediaNode(part, this.address())));
    this.mediaJson = media;
    if (this.isWhole || !(result.length > result.content.length)) return;
    setText(this.more, `Show all ${count(result.length)} characters`);
    if (!this.more.isConnected) this.node.append(this.more);
  }

  setState(state) {
    this.node.className = `tool ${state}`;
    this.state.setAttribute("aria-label", state);
    setText(this.title, state === "failed" ? "Error" : "Result");
  }

  finish(content, isError) {
    this.update({ ...this.part, result: { content, is_error: isError } });
  }

  /** The run is over, so this call gets no result any more. */
  stop(text) {
    if (!this.part.running || this.part.result) return;
    this.setState("failed");
    setText(this.result, text);
  }

  async showAll() {
    this.more.disabled = true;
    try {
      const { content } = await get("/api/result", { ...this.address(), call: this.part.id });
      this.isWhole = true;
      setOutput(this.result, content);
      this.more.remove();
    } catch (error) {
      setText(this.more, error.message);
    }
    this.more.disabled = false;
  }
}

/** Write what a tool returned; terminal colours are shown. */
function setOutput(node, text) {
  if (!hasAnsi(text)) setText(node, text);
  else if (node.dataset.raw !== text) refill(node, ...ansiNodes(text));
  node.dataset.raw = hasAnsi(text) ? text : "";
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** The first short argument of a call. */
export function excerpt(input) {
  if (typeof input === "string") return input.slice(0, EXCERPT);
  const first = Object.values(input ?? {}).find((value) =>
    ["string", "number"].includes(typeof value),
  );
  return String(first ?? "")
    .replace(/\s+/g, " ")
    .slice(0, EXCERPT);
}
