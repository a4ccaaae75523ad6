"""What must hold between the rows of a store in tables, and how to find what does not."""

Shape = tuple[str, str, str]
"""The kind of object, what is wrong with it, and how to find those: a name, and their thread."""

DANGLING: Shape = (
    "ref",
    "points at a commit that is not there",
    """SELECT r.name, r.thread FROM ref r LEFT JOIN commits c ON c.key = r.target
    WHERE r.target IS NOT NULL AND (c.key IS NULL OR c.thread <> r.thread)""",
)
ASTRAY: Shape = (
    "ref",
    "points elsewhere than the log says",
    """SELECT r.name, r.thread FROM ref r JOIN (SELECT o.ref, o.new,
        row_number() OVER (PARTITION BY o.thread, o.ref ORDER BY o.seq DESC) AS place,
        o.thread FROM operation o) n ON n.ref = r.key AND n.thread = r.thread AND n.place = 1
    WHERE coalesce(r.target, 0) <> coalesce(n.new, 0)""",
)
HOMELESS: Shape = (
    "thread",
    "stands on a branch that is not there",
    """SELECT t.name, t.key FROM thread t
    LEFT JOIN ref r ON r.thread = t.key AND r.name = t.head WHERE r.key IS NULL
    AND EXISTS (SELECT 1 FROM commits c WHERE c.thread = t.key) AND (t.head <> 'main'
    OR EXISTS (SELECT 1 FROM operation o
        LEFT JOIN ref n ON n.key = o.ref AND n.thread = o.thread
        WHERE o.thread = t.key AND n.key IS NULL))""",
)

SHAPES: tuple[Shape, ...] = (
    (
        "commit",
        "names a parent that is not there",
        """SELECT c.id, c.thread FROM commits c LEFT JOIN commits p ON p.key = c.parent
        LEFT JOIN commits s ON s.key = c.second WHERE (c.parent IS NOT NULL AND p.key IS NULL)
        OR (c.second IS NOT NULL AND s.key IS NULL)""",
    ),
    (
        "commit",
        "names an entry that is not there",
        """SELECT c.id, c.thread FROM commits c LEFT JOIN entry e ON e.key = c.entry
        WHERE c.entry IS NOT NULL AND e.key IS NULL UNION
        SELECT c.id, c.thread FROM commit_entry m JOIN commits c ON c.key = m.commit_key
        LEFT JOIN entry e ON e.key = m.entry WHERE e.key IS NULL""",
    ),
    (
        "commit",
        "stands at another depth than its parents say",
        """SELECT c.id, c.thread FROM commits c LEFT JOIN commits p ON p.key = c.parent
        LEFT JOIN commits s ON s.key = c.second WHERE c.depth <> 1 +
        CASE WHEN coalesce(s.depth, 0) > coalesce(p.depth, 0) THEN s.depth
        ELSE coalesce(p.depth, 0) END""",
    ),
    (
        "commit",
        "stands on a line that does not lead to its parent",
        """SELECT n.id, n.thread FROM (SELECT id, thread, parent, line,
            lag(key) OVER (PARTITION BY line ORDER BY depth) AS before FROM commits) n
        LEFT JOIN commits p ON p.key = n.parent LEFT JOIN line l ON l.key = n.line
        WHERE CASE WHEN n.before IS NOT NULL THEN n.parent IS NULL OR n.before <> n.parent
        ELSE l.key IS NULL OR coalesce(l.base_line, 0) <> coalesce(p.line, 0)
        OR coalesce(l.base_depth, 0) <> coalesce(p.depth, 0) END""",
    ),
    (
        "commit",
        "belongs to a thread that is not there",
        """SELECT c.id, c.thread FROM commits c LEFT JOIN thread t ON t.key = c.thread
        WHERE t.key IS NULL""",
    ),
    (
        "commit",
        "belongs to another thread than its parent",
        """SELECT c.id, c.thread FROM commits c JOIN commits p ON p.key IN (c.parent, c.second)
        WHERE p.thread <> c.thread""",
    ),
    (
        "link",
        "leads to a commit that is not there",
        """SELECT l.key, 0 FROM link l LEFT JOIN commits c ON c.key = l.commit_key
        WHERE c.key IS NULL""",
    ),
    DANGLING,
    ASTRAY,
    (
        "operation",
        "names a commit that is not there",
        """SELECT o.seq, o.thread FROM operation o LEFT JOIN commits a ON a.key = o.old
        LEFT JOIN commits b ON b.key = o.new WHERE (o.old IS NOT NULL AND a.key IS NULL)
        OR (o.new IS NOT NULL AND b.key IS NULL)""",
    ),
    (
        "operation",
        "names a branch that is not there",
        """SELECT o.seq, o.thread FROM operation o
        LEFT JOIN ref r ON r.key = o.ref AND r.thread = o.thread WHERE r.key IS NULL""",
    ),
    (
        "attempt",
        "belongs to a commit that is not there",
        """SELECT a.key, 0 FROM attempt a LEFT JOIN commits c ON c.key = a.commit_key
        WHERE c.key IS NULL""",
    ),
    HOMELESS,
    (
        "thread",
        "has fewer branches than it had",
        """SELECT t.name, t.key FROM thread t
        WHERE t.refs > (SELECT count(*) FROM ref n WHERE n.thread = t.key)""",
    ),
)
