// This search shows J2 and J3 for readers, writers and permits over several nodes, without clocks (see README.md). It
// extends `quorum.c` with locks that several claims hold. A phase is a time in which only readers, or only permits,
// hold the lock. The first reader of a phase counts up: its token is larger than the record's. A writer counts up, too.
// A reader that joins other readers takes the record's token. Each slot of permits has a series of tokens, its row. The
// record has the largest token of all rows. The floor of the rows is the record's token at the beginning of a phase of
// permits.
//
// The search has one to three claims of any kind, and other claims. Locks end at any time. A node executes a message at
// any time, in any order, any number of times, or never. A grant that counts up may give any larger token.
//
// Two claims are enough for any number of acquisitions, because J2 and J3 compare two successes. Other claims only make
// a node's next tokens larger, or end a lock. The grants of the two claims do both, at any time and by any amount. A
// reader that joins other readers equals a reader that counts up by as much as those readers did. Some searches have
// three claims.
//
// The search leaves out:
// - The time of an invocation. A claim is invoked at its first grant. After an earlier invocation, J3 would require
//   less of the claim.
// - The end of one reader while other readers hold the lock. The ended reader could only join them again, as if it had
//   stayed.
// - Refused and lost messages, and late replies. The sender counts none of them.
// - Duplicates of a grant that still holds. They change nothing.
// - Messages of a claim that has returned. Other claims can send the same.
// - Slots other than the compared one. Their tokens raise the record's token, as the tokens of other claims do.
#include "model.h"

enum { MOST_NODES = 3, MOST_CLAIMS = 3, NOBODY = 0, CLAIM = 1, NONE = -1 };
enum { NOTHING, READERS_HOLD, PERMITS_HELD }; // PERMITS_HELD: also if permits were held last
typedef struct {
  byte token;
  byte phase;
  byte writer;              // the claim that holds the lock alone
  byte reader[MOST_CLAIMS]; // the token of each claim as a reader of this node; NONE: no reader
  byte holder, row, floor;  // the compared slot: its claim, its last token, and the floor of its tokens
  byte astray[MOST_CLAIMS]; // the claim has another slot here; kept only if that makes a difference
  /** The state of each claim's grant. While the claim asks: SMALLER or HIGHEST token. While it raises: ASKED or AGREES. */
  byte known[MOST_CLAIMS];
} Node;
enum { UNKNOWN, SMALLER, HIGHEST };
enum { ASKED = 1, AGREES = 2 };
enum { IDLE, ASKING, RAISING, RETURNED };
typedef struct {
  Node nodes[MOST_NODES];
  byte phase[MOST_CLAIMS];
  byte token[MOST_CLAIMS]; // the highest granted token, while the claim asks
  byte above[MOST_CLAIMS]; // the highest token returned before the invocation, among those that the claim must exceed
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
enum {
  RIGHT,
  NO_WRITE_BACK,
  READERS_NOT_WRITTEN_BACK,
  WRITER_RAISES_ANY_TOKEN, // if the claim holds the lock, whatever the record's token
  RAISE_BLIND,
  READER_RAISES_ANYWHERE, // also if the claim is no reader any more
  READER_LOWERS_TOKEN,    // the record gets the reader's token, even a lower one
  JOINING_TAKES_TOKEN_OF_ANOTHER_NODE,
  FIRST_READER_DOES_NOT_COUNT_UP,
  WRITER_DOES_NOT_COUNT_UP_AFTER_READERS,
  READER_BESIDE_WRITER, // a reader joins a writer as it joins readers
  HALF_IS_ENOUGH,
  NO_FLOOR,
  ROW_FORGOTTEN, // a slot's token may equal the previous token of the slot
  RECORD_NOT_LIFTED_BY_GRANTS, // grants of a slot do not raise the record's token
  RECORD_NOT_LIFTED_BY_RAISES,
  PERMIT_RAISES_ANY_TOKEN, // if the claim has the slot, whatever the slot's last token
  PERMIT_RAISES_ANY_SLOT,  // also if the claim has another slot
};

static int quorum(void) { return SET(PLANT) == HALF_IS_ENOUGH ? larger(1, SET(NODES) / 2) : SET(NODES) / 2 + 1; }
static int claims(void) { return SET(READERS) + SET(WRITERS) + SET(PERMITS); }
static int reads(int k) { return k < SET(READERS); }
static int has_permit(int k) { return k >= SET(READERS) + SET(WRITERS); }

static void exchange_claims(State *state, int a, int b) {
  for (int n = 0; n < SET(NODES); n++) {
    Node *node = &state->nodes[n];
    if (node->writer == CLAIM + a) node->writer = (byte)(CLAIM + b);
    else if (node->writer == CLAIM + b) node->writer = (byte)(CLAIM + a);
    if (node->holder == CLAIM + a) node->holder = (byte)(CLAIM + b);
    else if (node->holder == CLAIM + b) node->holder = (byte)(CLAIM + a);
    EXCHANGE(node->astray[a], node->astray[b]);
    EXCHANGE(node->reader[a], node->reader[b]);
    EXCHANGE(node->known[a], node->known[b]);
  }
  EXCHANGE(state->phase[a], state->phase[b]);
  EXCHANGE(state->token[a], state->token[b]);
  EXCHANGE(state->above[a], state->above[b]);
}

/**
 * Numbers the compared tokens 3, 6, 9, ... in their order. A record's token between two compared tokens gets the least
 * number between them, because a node can do with the least number whatever it could do with a larger one. A new token
 * between two compared tokens gets a larger number (see `expand_grant`).
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
    // In this case, a token above the floor is above the row.
    if (node->row < node->floor) node->row = node->floor;
    if (node->phase != PERMITS_HELD) node->row = node->floor = 0;
  }
}

/** Returns true if a later claim may still be compared with this returned claim's token. */
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
    // A claim's token never decreases.
    if (phase == RETURNED || state->token[k] > state->above[k]) state->above[k] = NONE;
    if (phase == RETURNED && !is_compared(state, k)) state->token[k] = NONE;
    for (int n = 0; n < SET(NODES); n++) {
      Node *node = &state->nodes[n];
      if (phase == RETURNED) node->known[k] = UNKNOWN;
      // A claim that has nothing more to do on a node equals any other claim there.
      const int done = phase == RETURNED || (phase == RAISING && node->known[k] != ASKED);
      if (done && SET(PLANT) != READER_BESIDE_WRITER) {
        if (node->writer == CLAIM + k) node->writer = NOBODY;
        if (node->holder == CLAIM + k) node->holder = NOBODY;
        node->reader[k] = NONE;
        node->astray[k] = 0;
      }
      // A reader's granted token matters only if it may be too large.
      if (node->reader[k] != NONE && (!SET(OWN) || node->reader[k] <= state->token[k])) node->reader[k] = 0;
      // Every later grant has a larger token than the one to which the claim raises.
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
  SORT(state->nodes, SET(NODES));
  // Claims of one kind are renamed in the order that gives the least state.
  State best = *state, other = *state;
  const int first[] = {0, SET(READERS), SET(READERS) + SET(WRITERS)};
  const int last[] = {SET(READERS), SET(READERS) + SET(WRITERS), claims()};
  for (int kind = 0; kind < 3; kind++) {
    const int count = last[kind] - first[kind];
    if (count < 2) continue;
    // Three claims of a kind have six orders, which two exchanges reach in three rounds.
    for (int i = 0; i < (count == 3 ? 5 : 1); i++) {
      exchange_claims(&other, first[kind] + i % 2, first[kind] + i % 2 + 1);
      State sorted = other;
      SORT(sorted.nodes, SET(NODES));
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
    else if (reads(i) != reads(k) && SET(APART)) broken("J2: a reader has the token of a claim that is not a reader");
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

/** Returns the next larger token that makes a difference: a compared token, or one between two compared tokens. */
static int next_token(int token) { return token % 3 == 2 ? token + 1 : token + 2 - token % 3; }

/** Returns the least token that makes a difference if the record has this token. */
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
    // Another reader may have raised the record's token before.
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
  // The former lock has ended.
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

/** Steps of other claims: a grant after the present lock has ended, a grant beside it (readers, permits), and a raise. */
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
  // A lock of several keys takes the highest token of all keys.
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
  // One token above all others is enough: later steps decide the order of several.
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
