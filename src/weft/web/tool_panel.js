// One tool call: a line with its main argument, which opens to the input and the result.

import { button, count, el, refill, visible } from "./dom.js";
import { get } from "./api.js";
import { ansiNodes, hasAnsi } from "./ansi.js";
import { mediaNode } from "./attachments.js";

const EXCERPT = 120;
const ARGUMENT = /^\s*{\s*"\w+"\s*:\s*"((?:[^"\\]|\\.)*)/; // the first one, while the JSON arrives
const KINDS = { "-": "del", "+": "ins", " ": "same" };
const PATCH = /^(\*\*\* Begin Patch|diff --git |--- )/;

export class ToolPanel {
	/** `part`: {id, name, input, main?, result?}; `address()` names the thread and branch. */
	constructor(part, address) {
		this.address = address;
		this.state = el("span.state", { role: "img" });
		this.name = el("code.tool-name");
		this.excerpt = el("span.excerpt");
		this.inputTitle = el("p.part-title");
		this.input = el("pre.input");
		this.title = el("p.part-title.result-title");
		this.result = el("pre.result");
		this.media = el("div");
		this.more = button("", () => this.showAll(), { class: "quiet more" });
		this.node = el(
			"details.tool",
			{ "data-call": part.id, "data-key": `call:${part.id}` },
			el("summary", this.state, this.name, this.excerpt),
			this.inputTitle,
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
		const json = typeof input === "string" ? input : JSON.stringify(input, null, 2);
		if (json !== this.inputJson) this.setInput(input, json);
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

	/** Show the input as JSON; what it changes in a file, as a diff. */
	setInput(input, json) {
		this.inputJson = json;
		const lines = editLines(input);
		const command = commandText(input);
		this.inputTitle.textContent = lines ? "Change" : command === null ? "Input" : "Command";
		this.input.classList.toggle("edit", Boolean(lines));
		if (lines) refill(this.input, ...lines.map(([sign, text]) => el("span", { class: KINDS[sign] }, `${sign} ${text}\n`)));
		else if (command !== null) refill(this.input, visible(command), ...otherInput(input));
		else this.input.textContent = visible(json);
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

/** The command that a call runs in a shell, as it would be typed; null for other calls. The tools of
 *  Claude Code (`command`), Codex (`command` or `cmd`, maybe a list) and Gemini CLI are known. */
function commandText(input) {
	const command = input?.command ?? input?.cmd;
	if (typeof command === "string") return command;
	const isList = Array.isArray(command) && command.length && command.every((word) => typeof word === "string");
	if (!isList) return null;
	const isShell = command.length === 3 && /^-l?c$/.test(command[1]);
	return isShell ? command[2] : command.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word))).join(" ");
}

/** The other members of a command's input, one per line. */
function otherInput({ command, cmd, ...others }) {
	const lines = Object.entries(others).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}\n`);
	return lines.length ? [el("span.other-input", `\n\n${lines.join("")}`)] : [];
}

/** The lines of the change that a call makes in files, each with its sign; null for other calls.
 *  The tools of Claude Code, Codex, Gemini CLI and Anthropic's text editor are known. */
function editLines(input) {
	const patch = typeof input === "string" ? input : (input?.patch ?? input?.input);
	if (typeof patch === "string" && PATCH.test(patch))
		return patch.split("\n").map((line) => (KINDS[line[0]] ? [line[0], line.slice(1)] : [" ", line]));
	const edits = Array.isArray(input?.edits) ? input.edits : [input];
	const pairs = edits.map((edit) => [edit?.old_string ?? edit?.old_str, edit?.new_string ?? edit?.new_str]);
	if (!pairs.every((pair) => pair.every((text) => typeof text === "string"))) return null;
	return pairs.flatMap(([before, after]) => changedLines(before.split("\n"), after.split("\n")));
}

/** Equal lines at both ends are context. */
function changedLines(before, after) {
	let [start, end] = [0, 0];
	while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
	const most = Math.min(before.length, after.length) - start;
	while (end < most && before.at(-1 - end) === after.at(-1 - end)) end += 1;
	const signed = (sign, lines) => lines.map((line) => [sign, line]);
	return [
		...signed(" ", before.slice(0, start)),
		...signed("-", before.slice(start, before.length - end)),
		...signed("+", after.slice(start, after.length - end)),
		...signed(" ", before.slice(before.length - end)),
	];
}

/** Write what a tool returned; terminal colours are shown. */
function setOutput(node, text) {
	if (!hasAnsi(text)) setText(node, text);
	else if (node.dataset.raw !== text) refill(node, ...ansiNodes(text));
	node.dataset.raw = hasAnsi(text) ? text : "";
}

function setText(node, text) {
	const shown = visible(text);
	if (node.textContent !== shown) node.textContent = shown;
}

/** The first short argument of a call. */
export function excerpt(input) {
	if (typeof input === "string") return (ARGUMENT.exec(input)?.[1] ?? input).slice(0, EXCERPT);
	const first = Object.values(input ?? {}).find((value) =>
		["string", "number"].includes(typeof value),
	);
	return String(first ?? "")
		.replace(/\s+/g, " ")
		.slice(0, EXCERPT);
}
