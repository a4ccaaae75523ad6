// Which system messages a person sees: the page's copy of `weft.agent.display_system_message`.
//
// The table comes from the server (`GET /api/system-table`), so there is one list of subtypes. The
// server already drops metadata; this filter is a second check.

const FIELD = /\{([a-z_.]+)\}/g;

/** How a system event is displayed ({subtype, kind, icon, text}); null if it is hidden. */
export function displaySystemMessage(table, event) {
	if (!isObject(event) || own(event, "type") !== "system") return null;
	const subtype = own(event, "subtype");
	if (typeof subtype !== "string") return null;
	for (const line of ruleOf(table, subtype)) {
		const text = fill(line, event);
		if (text !== null) return { subtype, kind: line.kind, icon: table.looks[line.kind].icon, text };
	}
	return null;
}

/** The text that the page logs for a hidden message. */
export function skipNote(subtype) {
	return `⏩ Skipping "${subtype}" system message (metadata only)`;
}

function ruleOf(table, subtype) {
	const name = subtype.toLowerCase();
	const rule = own(table.rules, name);
	if (rule !== undefined) return rule;
	if (name.includes(table.compaction_word)) return table.compaction;
	return name.startsWith(table.hidden_prefix) ? table.hidden : table.other;
}

function fill(line, event) {
	for (const [path, value] of Object.entries(line.where ?? {})) {
		if (lookUp(event, path) !== value) return null;
	}
	let isComplete = true;
	const text = line.text.replace(FIELD, (_, path) => {
		const value = lookUp(event, path);
		const text = fieldText(value);
		if (text === null || (line.text === `{${path}}` && typeof value !== "string")) isComplete = false;
		return text ?? "";
	});
	return isComplete ? text : null;
}

function lookUp(event, path) {
	return path.split(".").reduce((value, key) => own(value, key), event);
}

function fieldText(value) {
	if (typeof value === "string") return value.trim() ? value : null;
	return Number.isSafeInteger(value) ? String(value) : null;
}

function own(value, key) {
	return isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

function isObject(value) {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}
