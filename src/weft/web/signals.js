// Values that tell their readers when they change.
//
// `store({thread: null})` is an object whose members are such values. An effect runs at once, and
// again when a member that it has read gets another value. So what the page shows follows from the
// state (`state.js`), and nothing has to be updated by hand.

let reading = null; // the effect that runs now
let batches = 0;
const waiting = new Set(); // effects that have to run again

/** An object with these members; reading one in an effect makes the effect depend on it. */
export function store(values) {
	const result = {};
	for (const [name, first] of Object.entries(values)) {
		let value = first;
		const readers = new Set();
		Object.defineProperty(result, name, {
			enumerable: true,
			get() {
				if (reading) {
					readers.add(reading);
					reading.sources.add(readers);
				}
				return value;
			},
			set(next) {
				if (Object.is(next, value)) return;
				value = next;
				for (const effect of readers) waiting.add(effect);
				if (!batches) runWaiting();
			},
		});
	}
	return result;
}

/** Run a function now, and whenever a value that it has read changes. */
export function effect(run) {
	react({ run, sources: new Set() });
}

/** Call `run(value)` when what `read()` returns changes; what `run` reads does not count. */
export function watch(read, run) {
	let value = ignore(read);
	effect(() => {
		const next = read();
		if (Object.is(next, value)) return;
		value = next;
		ignore(() => run(next));
	});
}

/** Change several values; effects run once, after the last change. */
export function batch(change) {
	batches += 1;
	try {
		change();
	} finally {
		batches -= 1;
		if (!batches) runWaiting();
	}
}

function ignore(run) {
	const outer = reading;
	reading = null;
	try {
		return run();
	} finally {
		reading = outer;
	}
}

function react(effect) {
	for (const readers of effect.sources) readers.delete(effect);
	effect.sources.clear();
	const outer = reading;
	reading = effect;
	try {
		effect.run();
	} catch (error) {
		reportError(error); // the other effects must run
	} finally {
		reading = outer;
	}
}

function runWaiting() {
	batches += 1; // changes made by effects join this round
	for (const effect of waiting) {
		waiting.delete(effect);
		react(effect);
	}
	batches -= 1;
}
