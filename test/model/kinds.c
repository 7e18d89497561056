// Fencing tokens of readers, writers and permits over several nodes (J2, J3; see README.md), without any clock: `quorum.c`
// with locks that several hold at a time. The first reader of a phase counts up, as a writer does; one that joins others takes
// the token that the record has. A slot of permits has a row of tokens; the record has the largest of all, and the floor of
// the rows is what it had when a phase of permits began.
//
// What is in it: one to three claims of any kind, and anybody else. Locks end at any time. Messages are executed at any
// time, in any order, any number of times, or never. A grant that counts up may give any larger token.
//
// Why two claims are enough for any number of acquisitions: J2 and J3 compare two successes. What all other claims do on a
// node makes its next tokens larger, or ends something; the two claims' own grants do both, at any time, by any amount. A
// reader that joins others is one that counts up, by as much as they did. Three claims are searched in addition.
//
// What need not be modelled:
// - When a claim is invoked: no later than its first grant, and J3 asks most of it if it is then.
// - That one reader of a phase ends while others go on: all that it can do then is to join again, and it may be there still.
// - Refused and lost messages, late replies: the sender counts none of them.
// - Duplicates of a grant that still holds: they change nothing.
// - Messages of a claim that has returned: anybody can do what they do.
// - Other slots than the one whose tokens are compared: their tokens lift the record's, as anybody's do.
typedef signed char byte;
enum { MOST_NODES = 3, MOST_CLAIMS = 3, NOBODY = 0, CLAIM = 1, NONE = -1 };
enum { NOTHING, READERS_HOLD, PERMITS_HELD }; // permits: also when they were held last
typedef struct {
  byte token;
  byte phase;
  byte writer;              // the claim that holds it alone
  byte reader[MOST_CLAIMS]; // the token that each claim has here as a reader; NONE: it is no reader
  byte holder, row, floor;  // the slot: the claim that has it, its last token, and below what none of its tokens is
  byte astray[MOST_CLAIMS]; // the claim has another slot here; only where that makes a difference
  /** What each claim knows of its grant. Asking: SMALLER or HIGHEST of its tokens. Raising: ASKED or AGREES. */
  byte known[MOST_CLAIMS];
} Node;
enum { UNKNOWN, SMALLER, HIGHEST };
enum { ASKED = 1, AGREES = 2 };
enum { IDLE, ASKING, RAISING, RETURNED };
typedef struct {
  Node nodes[MOST_NODES];
  byte phase[MOST_CLAIMS];
  byte token[MOST_CLAIMS]; // asking: the highest that it was granted
  byte above[MOST_CLAIMS]; // the highest that had been returned when it was invoked, of those that it must be above
} State;

#include "search.h"

enum { NODES, READERS, WRITERS, PERMITS, OWN, AGREED, KEYS, DUPLICATES, APART, OTHERS, PLANT, WAY, SETTINGS };
static Setting settings[SETTINGS] = {
  [NODES] = {"nodes", 3, "1 to 3"},
  [READERS] = {"readers", 0, "claims that read; of all kinds three at most"},
  [WRITERS] = {"writers", 0, "claims that hold alone"},
  [PERMITS] = {"permits", 0, "claims of one and the same slot"},
  [OWN] = {"own", 1, "1: a reader is raised where it was granted no larger token; 0: wherever it is a reader"},
  [AGREED] = {"agreed", 1, "1: a node that granted just the token need not be raised; 0: all are raised"},
  [KEYS] = {"keys", 1, "1: a claim's token may be larger than any it was granted, as with several keys"},
  [DUPLICATES] = {"duplicates", 1, "1: an acquisition is executed any number of times; 0: once on each node"},
  [APART] = {"apart", 1, "1: no reader's token may be a writer's; 0: readers' tokens are not compared so"},
  [OTHERS] = {"others", 0, "1: grants and raises of other claims are steps of their own, though they lead to nothing else"},
  [PLANT] = {"plant", 0, "the number of a planted error, see `enum`"},
  [WAY] = {"way", 0, "1: print the way to a violation"},
};
#define SET(name) (settings[name].value)
enum {
  RIGHT,
  NO_WRITE_BACK,
  READERS_NOT_WRITTEN_BACK,
  WRITER_RAISES_ANY_TOKEN, // wherever it holds the lock, whatever the token of the record
  RAISE_BLIND,
  READER_RAISES_ANYWHERE, // also where it is no reader any more
  READER_LOWERS_TOKEN,    // the record gets its token, whatever it had
  JOINING_TAKES_TOKEN_OF_ANOTHER_NODE,
  FIRST_READER_DOES_NOT_COUNT_UP,
  WRITER_DOES_NOT_COUNT_UP_AFTER_READERS,
  READER_BESIDE_WRITER, // joins a writer as it joins readers
  HALF_IS_ENOUGH,
  NO_FLOOR,
  ROW_FORGOTTEN, // a slot's token may be as large as the one before
  RECORD_NOT_LIFTED_BY_GRANTS, // of a slot
  RECORD_NOT_LIFTED_BY_RAISES,
  PERMIT_RAISES_ANY_TOKEN, // wherever it has the slot, whatever the slot's last token
  PERMIT_RAISES_ANY_SLOT,  // also where it has another one
};

static int larger(int a, int b) { return a > b ? a : b; }
static int quorum(void) { return SET(PLANT) == HALF_IS_ENOUGH ? larger(1, SET(NODES) / 2) : SET(NODES) / 2 + 1; }
static int claims(void) { return SET(READERS) + SET(WRITERS) + SET(PERMITS); }
static int reads(int k) { return k < SET(READERS); }
static int has_permit(int k) { return k >= SET(READERS) + SET(WRITERS); }

static void exchange(byte *a, byte *b) {
  const byte old = *a;
  *a = *b;
  *b = old;
}

static void exchange_claims(State *state, int a, int b) {
  for (int n = 0; n < SET(NODES); n++) {
    Node *node = &state->nodes[n];
    if (node->writer == CLAIM + a) node->writer = (byte)(CLAIM + b);
    else if (node->writer == CLAIM + b) node->writer = (byte)(CLAIM + a);
    if (node->holder == CLAIM + a) node->holder = (byte)(CLAIM + b);
    else if (node->holder == CLAIM + b) node->holder = (byte)(CLAIM + a);
    exchange(&node->astray[a], &node->astray[b]);
    exchange(&node->reader[a], &node->reader[b]);
    exchange(&node->known[a], &node->known[b]);
  }
  exchange(&state->phase[a], &state->phase[b]);
  exchange(&state->token[a], &state->token[b]);
  exchange(&state->above[a], &state->above[b]);
}

static void sort_nodes(State *state) {
  for (int i = 1; i < SET(NODES); i++)
    for (int j = i; j > 0 && memcmp(&state->nodes[j - 1], &state->nodes[j], sizeof(Node)) > 0; j--) {
      const Node node = state->nodes[j];
      state->nodes[j] = state->nodes[j - 1];
      state->nodes[j - 1] = node;
    }
}

/**
 * The tokens that are compared are numbered 3, 6, 9, ... in their order. Of the token of a record that lies between two of
 * them no more is kept: with the least one, a node can do whatever it could with a larger one. A new one that lies between
 * two is above it (see `expand_grant`).
 */
static void number_tokens(State *state) {
  byte *compared[MOST_CLAIMS * (2 + MOST_NODES)], order[128] = {0};
  int count = 0, number = 0;
  for (int k = 0; k < claims(); k++) {
    compared[count++] = &state->token[k];
    compared[count++] = &state->above[k];
    for (int n = 0; n < SET(NODES); n++) compared[count++] = &state->nodes[n].reader[k];
  }
  for (int i = 0; i < count; i++)
    if (*compared[i] > 0) order[*compared[i]] = 1;
  for (int token = 0; token < 128; token++) order[token] = (byte)(order[token] ? number += 3 : number + 1);
  for (int i = 0; i < count; i++)
    if (*compared[i] > 0) *compared[i] = order[*compared[i]];
  for (int n = 0; n < SET(NODES); n++) {
    Node *node = &state->nodes[n];
    node->token = order[node->token];
    node->row = SET(PERMITS) ? order[node->row] : 0;
    node->floor = SET(PERMITS) ? order[node->floor] : 0;
    // Above the floor is above the row, then.
    if (node->row < node->floor) node->row = node->floor;
    if (node->phase != PERMITS_HELD) node->row = node->floor = 0;
  }
}

/** Whether the token of a claim that has returned still matters to another: it is not invoked, or not known to be above. */
static int is_compared(const State *state, int k) {
  for (int i = 0; i < claims(); i++) {
    if (state->phase[i] == RETURNED || (reads(i) && reads(k))) continue;
    if (state->phase[i] == IDLE || state->token[i] <= state->token[k]) return 1;
  }
  return 0;
}

static void normalise(State *state) {
  for (int k = 0; k < claims(); k++) {
    const int phase = state->phase[k];
    // The token of a claim never gets smaller.
    if (phase == RETURNED || state->token[k] > state->above[k]) state->above[k] = NONE;
    if (phase == RETURNED && !is_compared(state, k)) state->token[k] = NONE;
    for (int n = 0; n < SET(NODES); n++) {
      Node *node = &state->nodes[n];
      if (phase == RETURNED) node->known[k] = UNKNOWN;
      // Where a claim has nothing more to do, it is like anybody.
      const int done = phase == RETURNED || (phase == RAISING && node->known[k] != ASKED);
      if (done && SET(PLANT) != READER_BESIDE_WRITER) {
        if (node->writer == CLAIM + k) node->writer = NOBODY;
        if (node->holder == CLAIM + k) node->holder = NOBODY;
        node->reader[k] = NONE;
        node->astray[k] = 0;
      }
      // What a reader was granted matters where it may be too large.
      if (node->reader[k] != NONE && (!SET(OWN) || node->reader[k] <= state->token[k])) node->reader[k] = 0;
      // What was granted since is larger than what the claim raises to, and what will be, too.
      const int last = has_permit(k) ? node->row : node->token;
      const int raises = phase == RAISING && node->known[k] == ASKED && last > state->token[k] && !SET(PLANT);
      if (raises && (reads(k) ? SET(OWN) && node->reader[k] != 0 : 1)) {
        node->known[k] = UNKNOWN;
        node->reader[k] = NONE;
        if (node->writer == CLAIM + k) node->writer = NOBODY;
        if (node->holder == CLAIM + k) node->holder = NOBODY;
      }
    }
  }
  number_tokens(state);
  sort_nodes(state);
  // Claims of one kind are named in the order that makes the state least.
  State best = *state, other = *state;
  const int first[] = {0, SET(READERS), SET(READERS) + SET(WRITERS)};
  const int last[] = {SET(READERS), SET(READERS) + SET(WRITERS), claims()};
  for (int kind = 0; kind < 3; kind++) {
    const int count = last[kind] - first[kind];
    if (count < 2) continue;
    // Three of a kind have six orders: two exchanges, three times.
    for (int i = 0; i < (count == 3 ? 5 : 1); i++) {
      exchange_claims(&other, first[kind] + i % 2, first[kind] + i % 2 + 1);
      State sorted = other;
      sort_nodes(&sorted);
      if (memcmp(&sorted, &best, sizeof best) < 0) best = sorted;
    }
  }
  *state = best;
}

static void return_token(State *state, int k) {
  const int token = state->token[k];
  for (int i = 0; i < claims(); i++) {
    if (i == k || state->phase[i] != RETURNED || state->token[i] == NONE || state->token[i] != token) continue;
    if (!reads(i) && !reads(k)) broken("J2: a token is given twice");
    else if (reads(i) != reads(k) && SET(APART)) broken("J2: a reader has the token of one who is no reader");
  }
  if (token <= state->above[k]) broken("J3: a later token is not larger");
  state->phase[k] = RETURNED;
}

static void invoke(State *state, int k) {
  state->phase[k] = ASKING;
  state->above[k] = NONE;
  for (int i = 0; i < claims(); i++)
    if (state->phase[i] == RETURNED && (!reads(i) || !reads(k)))
      state->above[k] = (byte)larger(state->above[k], state->token[i]);
}

static void hear(State *state, int k, int n, int token) {
  int first = 1;
  for (int i = 0; i < SET(NODES); i++) first &= state->nodes[i].known[k] == UNKNOWN;
  if (first || token > state->token[k]) {
    for (int i = 0; i < SET(NODES); i++)
      if (state->nodes[i].known[k] == HIGHEST) state->nodes[i].known[k] = SMALLER;
    state->token[k] = (byte)token;
  }
  state->nodes[n].known[k] = token == state->token[k] ? HIGHEST : SMALLER;
}

/** The next larger token that makes a difference: one of those that are compared, or between two of them. */
static int next_token(int token) { return token % 3 == 2 ? token + 1 : token + 2 - token % 3; }

/** The least token that makes a difference where the record has this one. */
static int this_token(int token) { return token % 3 == 1 ? token + 1 : token; }

static void end_all(Node *node) {
  node->writer = node->phase = node->holder = 0;
  for (int k = 0; k < MOST_CLAIMS; k++) {
    node->reader[k] = NONE;
    node->astray[k] = 0;
  }
}

static void expand_permit(const State *from, const State *asked, int k, int n, int above) {
  const Node *node = &from->nodes[n];
  const int known = node->known[k], plant = SET(PLANT);
  int floor = node->floor, row = node->row;
  if (node->phase != PERMITS_HELD) {
    floor = plant == NO_FLOOR ? 0 : node->token;
    row = 0;
  }
  State next = *asked;
  Node *granted = &next.nodes[n];
  if (plant == PERMIT_RAISES_ANY_SLOT && known != UNKNOWN && node->phase == PERMITS_HELD) {
    if (granted->holder == CLAIM + k) granted->holder = NOBODY;
    granted->astray[k] = 1;
    step(next, "permit %d acquires another slot on node %d", k, n);
  }
  const int same = plant == ROW_FORGOTTEN ? this_token(larger(row, floor)) : next_token(larger(row, floor));
  for (int token = same; token <= above; token = next_token(token)) {
    next = *asked;
    if (node->phase != PERMITS_HELD) end_all(granted);
    granted->phase = PERMITS_HELD;
    granted->holder = (byte)(CLAIM + k);
    granted->astray[k] = 0;
    granted->row = (byte)token;
    granted->floor = (byte)floor;
    if (plant != RECORD_NOT_LIFTED_BY_GRANTS) granted->token = (byte)larger(granted->token, token);
    if (known == UNKNOWN) hear(&next, k, n, token);
    step(next, "permit %d acquires %son node %d: %d", k, known == UNKNOWN ? "" : "again ", n, token);
  }
}

static void expand_grant(const State *from, int k, int n, int above) {
  const int phase = from->phase[k], known = from->nodes[n].known[k], plant = SET(PLANT);
  const Node *node = &from->nodes[n];
  if (phase == RETURNED || (phase == RAISING && known != ASKED)) return;
  if (node->reader[k] != NONE || (known != UNKNOWN && !SET(DUPLICATES))) return;
  State asked = *from, next;
  if (phase == IDLE) invoke(&asked, k);
  Node *granted = &next.nodes[n];
  const char *again = known == UNKNOWN ? "" : "again ";
  const int joins = reads(k) && (node->phase == READERS_HOLD || (plant == READER_BESIDE_WRITER && node->writer));
  const int as_it_is = this_token(node->token);
  if (joins)
    // Another reader may have raised the token before.
    for (int token = as_it_is; token <= (node->phase == READERS_HOLD ? above : as_it_is); token = next_token(token)) {
      next = asked;
      granted->token = granted->reader[k] = (byte)token;
      const int another = plant == JOINING_TAKES_TOKEN_OF_ANOTHER_NODE && SET(NODES) > 1;
      if (known == UNKNOWN) hear(&next, k, n, another ? this_token(from->nodes[(n + 1) % SET(NODES)].token) : token);
      step(next, "reader %d joins %son node %d: %d", k, again, n, token);
    }
  if (has_permit(k)) {
    expand_permit(from, &asked, k, n, above);
    return;
  }
  // The lock that was there has ended.
  const int same = (plant == FIRST_READER_DOES_NOT_COUNT_UP && reads(k)) ||
    (plant == WRITER_DOES_NOT_COUNT_UP_AFTER_READERS && !reads(k) && node->phase);
  for (int token = same ? as_it_is : next_token(node->token); token <= above; token = next_token(token)) {
    next = asked;
    end_all(granted);
    granted->token = (byte)token;
    if (reads(k)) {
      granted->phase = READERS_HOLD;
      granted->reader[k] = (byte)token;
    } else granted->writer = (byte)(CLAIM + k);
    if (known == UNKNOWN) hear(&next, k, n, token);
    step(next, "%s %d acquires %son node %d: %d", reads(k) ? "reader" : "writer", k, again, n, token);
  }
}

/** What other claims do: a grant that ends what was there, or, among readers and permits, one that does not; a raise. */
static void expand_others(const State *from, int n, int above) {
  const Node *node = &from->nodes[n];
  State next;
  Node *after = &next.nodes[n];
  for (int token = next_token(node->token); token <= above; token = next_token(token))
    for (int phase = NOTHING; phase <= PERMITS_HELD; phase++) {
      next = *from;
      if (phase != node->phase || !phase) {
        end_all(after);
        after->floor = after->row = node->token;
      }
      after->phase = (byte)phase;
      after->token = (byte)token;
      step(next, "somebody else acquires or raises on node %d in mode %d: %d", n, phase, token);
    }
  for (int row = next_token(node->row); node->phase == PERMITS_HELD && row <= above; row = next_token(row)) {
    next = *from;
    after->holder = NOBODY;
    after->row = (byte)row;
    after->token = (byte)larger(node->token, row);
    step(next, "somebody else acquires the slot on node %d: %d", n, row);
  }
}

static void expand_decision(const State *from, int k, int above) {
  int granted = 0;
  for (int n = 0; n < SET(NODES); n++) granted += from->nodes[n].known[k] != UNKNOWN;
  if (granted < quorum()) return;
  // A lock of several keys takes the highest token of all of them.
  for (int token = from->token[k]; token <= (SET(KEYS) ? above : from->token[k]); token = next_token(token)) {
    State next = *from;
    int agree = 0;
    next.phase[k] = RAISING;
    next.token[k] = (byte)token;
    for (int n = 0; n < SET(NODES); n++) {
      const int known = from->nodes[n].known[k];
      const int same = known == HIGHEST && token == from->token[k];
      agree += same;
      next.nodes[n].known[k] = known == UNKNOWN ? UNKNOWN : same && SET(AGREED) ? AGREES : ASKED;
    }
    const int plant = SET(PLANT);
    const int done = plant == NO_WRITE_BACK || (plant == READERS_NOT_WRITTEN_BACK && reads(k));
    if (agree >= quorum() || done) return_token(&next, k);
    step(next, "claim %d %s %d", k, next.phase[k] == RETURNED ? "returns" : "raises to", token);
  }
}

static int may_raise(const Node *node, int k, int token) {
  const int plant = SET(PLANT);
  if (plant == RAISE_BLIND) return 1;
  if (has_permit(k)) {
    if (plant == PERMIT_RAISES_ANY_SLOT && node->astray[k]) return 1;
    return node->holder == CLAIM + k && (node->row <= token || plant == PERMIT_RAISES_ANY_TOKEN);
  }
  if (!reads(k)) return node->writer == CLAIM + k && (node->token <= token || plant == WRITER_RAISES_ANY_TOKEN);
  if (plant == READER_RAISES_ANYWHERE) return 1;
  return node->reader[k] != NONE && (!SET(OWN) || node->reader[k] <= token);
}

static void expand_raise(const State *from, int k, int n) {
  const int token = from->token[k];
  if (from->nodes[n].known[k] != ASKED || !may_raise(&from->nodes[n], k, token)) return;
  State next = *from;
  Node *node = &next.nodes[n];
  const int lowers = SET(PLANT) == READER_LOWERS_TOKEN && reads(k);
  if (has_permit(k) && !node->astray[k]) node->row = (byte)larger(node->row, token);
  if (!has_permit(k) || SET(PLANT) != RECORD_NOT_LIFTED_BY_RAISES)
    node->token = (byte)(lowers ? token : larger(node->token, token));
  node->known[k] = AGREES;
  int agree = 0;
  for (int i = 0; i < SET(NODES); i++) agree += next.nodes[i].known[k] == AGREES;
  if (agree >= quorum()) return_token(&next, k);
  step(next, "claim %d raises node %d to %d%s", k, n, token, next.phase[k] == RETURNED ? ", returns" : "");
}

static void expand(const State *from) {
  int highest = 0, left = 0;
  for (int k = 0; k < claims(); k++) {
    left += from->phase[k] != RETURNED;
    highest = larger(highest, larger(from->token[k], from->above[k]));
    for (int n = 0; n < SET(NODES); n++) highest = larger(highest, from->nodes[n].reader[k]);
  }
  if (!left) return;
  for (int n = 0; n < SET(NODES); n++) highest = larger(highest, larger(from->nodes[n].token, from->nodes[n].row));
  // One that is above all: of several such the order is told by what comes after.
  const int above = next_token(highest - highest % 3);
  for (int n = 0; n < SET(NODES) && SET(OTHERS); n++) expand_others(from, n, above);
  for (int k = 0; k < claims(); k++) {
    if (from->phase[k] == ASKING) expand_decision(from, k, above);
    for (int n = 0; n < SET(NODES); n++) {
      expand_grant(from, k, n, above);
      if (from->phase[k] == RAISING) expand_raise(from, k, n);
    }
  }
}

static void print_state(const State *state) {
  printf("   ");
  for (int n = 0; n < SET(NODES); n++) {
    const Node *node = &state->nodes[n];
    printf(" node %d: %d", n, node->token);
    if (node->writer) printf(" of claim %d", node->writer - CLAIM);
    if (node->phase == READERS_HOLD) printf(" of readers");
    if (node->phase == PERMITS_HELD) printf(" of permits, the slot's %d, floor %d", node->row, node->floor);
    if (node->holder) printf(", the slot claim %d's", node->holder - CLAIM);
    for (int k = 0; k < claims(); k++)
      if (node->reader[k] != NONE) printf(", claim %d by %d", k, node->reader[k]);
    printf(";");
  }
  printf("\n");
}

int main(int argc, char **argv) {
  read_settings(settings, SETTINGS, argc, argv);
  State start;
  memset(&start, 0, sizeof start);
  for (int k = 0; k < MOST_CLAIMS; k++) {
    start.token[k] = start.above[k] = NONE;
    for (int n = 0; n < MOST_NODES; n++) start.nodes[n].reader[k] = NONE;
  }
  return search(start, SET(WAY));
}
