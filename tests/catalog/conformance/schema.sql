-- What the suite needs of an agent that is not Hawker's: give it to the agent as one of its schema files.
CREATE TABLE conformance (
    node TEXT NOT NULL,
    id INTEGER NOT NULL,
    text TEXT NOT NULL DEFAULT '',
    data BLOB,
    number REAL,
    PRIMARY KEY (node, id)
);
CREATE TABLE conformance_notes (
    node TEXT NOT NULL,
    id INTEGER NOT NULL,
    of INTEGER NOT NULL DEFAULT 0,
    note TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (node, id)
);
