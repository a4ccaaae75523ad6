// Terminal output as text: colours become spans with classes, and everything else that a terminal
// would obey is removed. A carriage return starts the line again, as progress bars do.
//
// https://en.wikipedia.org/wiki/ANSI_escape_code#Select_Graphic_Rendition_parameters

import { el } from "./dom.js";

// CSI sequences; OSC, DCS and other strings up to their end; other two-character escapes.
const ESCAPES = /\x1b\[([0-9;:?<=>]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?/g;
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\x9b]/g;
const MOST_SPANS = 5000; // more colours than this are shown without colour

export function hasAnsi(text) {
	return text.includes("\x1b") || text.includes("\r");
}

/** Nodes for terminal output. */
export function ansiNodes(text) {
	const clean = text.replaceAll("\r\n", "\n").replace(/[^\n]*\r(?=[^\n])/g, "");
	const nodes = [];
	let [start, style, spans] = [0, new Set(), 0];
	const add = (piece) => {
		const plain = piece.replace(CONTROLS, "").replaceAll("\r", "");
		if (!plain) return;
		const isStyled = style.size > 0 && spans < MOST_SPANS;
		if (isStyled) spans += 1;
		nodes.push(isStyled ? el("span", { class: [...style].join(" ") }, plain) : plain);
	};
	for (const match of clean.matchAll(ESCAPES)) {
		add(clean.slice(start, match.index));
		start = match.index + match[0].length;
		if (match[2] === "m") style = restyle(style, match[1]);
	}
	add(clean.slice(start));
	return nodes;
}

/** The style after the parameters of an SGR sequence. */
function restyle(style, parameters) {
	const next = new Set(style);
	const drop = (pattern) => {
		for (const name of next) if (pattern.test(name)) next.delete(name);
	};
	const codes = parameters.split(/[;:]/).map((code) => Number(code) || 0);
	for (let index = 0; index < codes.length; index += 1) {
		const code = codes[index];
		if (code === 0) next.clear();
		else if (code === 1) next.add("ansi-bold");
		else if (code === 3) next.add("ansi-italic");
		else if (code === 4) next.add("ansi-underline");
		else if (code === 22) next.delete("ansi-bold");
		else if (code === 23) next.delete("ansi-italic");
		else if (code === 24) next.delete("ansi-underline");
		else if (code === 38 || code === 48) index += codes[index + 1] === 2 ? 4 : 2; // 256 colours, RGB
		else if (code === 39) drop(/^ansi-\d/);
		else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
			drop(/^ansi-\d/);
			next.add(`ansi-${code % 10}`);
		}
	}
	return next;
}
