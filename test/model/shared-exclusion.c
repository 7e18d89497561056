// This search shows J1 for readers and writers over several nodes: no reader holds the lock beside a writer within their
// validity. It extends `exclusion.c` with a record that several claims hold. Each reader has an end of its own, and the
// record ends with the last reader. The search includes extensions, late and lost messages, clocks that gain, and nodes
// that lose their data.
//
// One reader and one writer are enough: J1 compares two holders. Other readers of a node can only block the writer, or move
// the record's end. A holder of permits excludes an exclusive holder as a reader excludes a writer.
//
// Time advances as in `exclusion.c`. A node executes a message at any time, in any order, any number of times, or never;
// messages have no deadline.
#include "model.h"

enum { MOST_NODES = 3, READER = 0, WRITER = 1, NOBODY = 0, WRITTEN, READ };
typedef struct {
  byte record, left; // the mode of the holders, and the ticks until the record ends
  byte ends;         // ticks until the claim is no reader any more
  byte guard;        // ticks until the node grants again
  byte gained;       // ticks until the clock may gain again
  byte granted[2], extended[2]; // answers that the claims have received
} Node;
enum { IDLE, ASKING, HOLDS, ENDED };
typedef struct {
  byte phase, age; // ticks since the send of the first message, or of the last extension that counted
  byte extending, since; // ticks since the send of the extension
  byte late; // 1: replies to earlier extensions are still on their way, and no longer count
} Claim;
typedef struct {
  Node nodes[MOST_NODES];
  Claim claims[2];
} State;

#include "search.h"

enum { NODES, TTL, DRIFT, GAIN, GUARD, LOSSES, EXTENSIONS, OTHERS, PLANT, WAY, SETTINGS };
static Setting settings[SETTINGS] = {
  [NODES] = {"nodes", 3, "1 to 3"},
  [TTL] = {"ttl", 3, "ticks that a grant or an extension lasts; those of other readers as many or less"},
  [DRIFT] = {"drift", 1, "ticks by which validity is shorter than the ttl"},
  [GAIN] = {"gain", 1, "1: a node's clock may gain a tick in each ttl"},
  [GUARD] = {"guard", 3, "ticks for which a node that failed grants nothing"},
  [LOSSES] = {"losses", 1, "1: a node may lose its data, again and again, never two within the guard"},
  [EXTENSIONS] = {"extensions", 1, "1: holders extend"},
  [OTHERS] = {"others", 1, "1: there are other readers, whose ends are of any length"},
  [PLANT] = {"plant", 0, "the number of a planted error, see `enum`"},
  [WAY] = {"way", 0, "1: print the way to a violation"},
};
enum {
  RIGHT,
  READER_BESIDE_WRITER,
  WRITER_BESIDE_READERS,
  JOINING_SETS_END,   // a reader's shorter ttl shortens the record for all readers
  EXTENDING_SETS_END, // the same for extensions
  RELEASE_FREES_RECORD, // while others read
  VALIDITY_FROM_REPLY,
  EXTEND_WHOEVER_READS, // extends the record even if the claim is no reader
  EXTEND_WHAT_LAPSED,   // extends the claim, though another claim may have the record
  HALF_IS_ENOUGH,
};

static int quorum(void) { return SET(PLANT) == HALF_IS_ENOUGH ? SET(NODES) / 2 + !(SET(NODES) / 2) : SET(NODES) / 2 + 1; }
static int validity(void) { return SET(TTL) - SET(DRIFT); }

static void normalise(State *state) {
  for (int k = 0; k < 2; k++) {
    Claim *claim = &state->claims[k];
    if ((claim->phase == ASKING || claim->phase == HOLDS) && claim->age >= validity()) claim->phase = ENDED;
    if (claim->phase == ENDED) claim->age = 0;
    if (claim->phase == ENDED || claim->since >= validity()) claim->extending = 0;
    if (!claim->extending) claim->since = 0;
    for (int n = 0; n < SET(NODES); n++) {
      if (claim->phase != ASKING) state->nodes[n].granted[k] = 0;
      if (!claim->extending) state->nodes[n].extended[k] = 0;
    }
  }
  for (int n = 0; n < SET(NODES); n++)
    if (!state->nodes[n].left) state->nodes[n].record = NOBODY;
  for (int i = 1; i < SET(NODES); i++)
    for (int j = i; j > 0 && memcmp(&state->nodes[j - 1], &state->nodes[j], sizeof(Node)) > 0; j--) {
      const Node node = state->nodes[j];
      state->nodes[j] = state->nodes[j - 1];
      state->nodes[j - 1] = node;
    }
}

static void expand_time(const State *from) {
  State next = *from;
  for (int n = 0; n < SET(NODES); n++) {
    less(&next.nodes[n].left);
    less(&next.nodes[n].ends);
    less(&next.nodes[n].guard);
    less(&next.nodes[n].gained);
  }
  for (int k = 0; k < 2; k++) {
    Claim *claim = &next.claims[k];
    if (claim->phase == ASKING || claim->phase == HOLDS) claim->age++;
    if (claim->extending) claim->since++;
  }
  step(next, "a tick");
}

static void expand_faults(const State *from, int n) {
  State next = *from;
  Node *node = &next.nodes[n];
  if (SET(GAIN) && !node->gained && (node->left || node->guard)) {
    less(&node->left);
    less(&node->ends);
    less(&node->guard);
    node->gained = (byte)SET(TTL);
    step(next, "the clock of node %d gains a tick", n);
  }
  for (int i = 0; i < SET(NODES); i++)
    if (i != n && from->nodes[i].guard) return;
  if (!SET(LOSSES)) return;
  next = *from;
  node->record = node->left = node->ends = 0;
  node->guard = (byte)SET(GUARD);
  step(next, "node %d loses its data", n);
}

static void expand_others(const State *from, int n) {
  const Node *node = &from->nodes[n];
  if (!SET(OTHERS) || node->record == WRITTEN) return;
  const int plant = SET(PLANT);
  for (int ends = 1; ends <= SET(TTL); ends++) {
    const int sets = plant == JOINING_SETS_END || (plant == EXTENDING_SETS_END && node->record);
    const int left = sets ? ends : larger(node->left, ends);
    if (left == node->left || node->guard) continue;
    State next = *from;
    next.nodes[n].record = READ;
    next.nodes[n].left = (byte)left;
    step(next, "another reader acquires or extends on node %d for %d", n, ends);
  }
  for (int left = plant == RELEASE_FREES_RECORD ? 0 : node->ends; node->record && left < node->left; left++) {
    State next = *from;
    next.nodes[n].left = (byte)left;
    step(next, "another reader releases on node %d, which leaves %d", n, left);
  }
}

static void hold(State *state, int k) {
  state->claims[k].phase = HOLDS;
  if (SET(PLANT) == VALIDITY_FROM_REPLY) state->claims[k].age = 0;
  if (state->claims[1 - k].phase == HOLDS) broken("J1: a reader and a writer hold the lock within their validity");
}

static int heard(State *state, int k, int n) {
  int granted = 0;
  state->nodes[n].granted[k] = 1;
  for (int i = 0; i < SET(NODES); i++) granted += state->nodes[i].granted[k];
  if (granted >= quorum()) hold(state, k);
  return granted >= quorum();
}

static void expand_acquisition(const State *from, int k, int n) {
  const Claim *claim = &from->claims[k];
  const Node *node = &from->nodes[n];
  if (claim->phase == IDLE) return;
  const int own = k == READER ? node->ends > 0 : node->record == WRITTEN;
  const int shut = k == READER
    ? node->record == WRITTEN && SET(PLANT) != READER_BESIDE_WRITER
    : node->record == READ && SET(PLANT) != WRITER_BESIDE_READERS;
  State next = *from;
  // A node grants a duplicate of a held lock again, also under the guard, and does not prolong the lock.
  if (!own) {
    if (shut || node->guard) return;
    Node *after = &next.nodes[n];
    after->left = (byte)(k == READER ? larger(node->left, SET(TTL)) : SET(TTL));
    if (k == READER) after->ends = (byte)SET(TTL);
    after->record = k == READER ? READ : WRITTEN;
    step(next, "claim %d acquires on node %d, unheard", k, n);
  }
  if (claim->phase != ASKING || node->granted[k]) return;
  const int holds = heard(&next, k, n);
  step(next, "claim %d acquires on node %d%s", k, n, holds ? ", and holds the lock" : "");
}

static void expand_end(const State *from, int k, int n) {
  const Node *node = &from->nodes[n];
  if (from->claims[k].phase != ENDED) return;
  State next = *from;
  if (k == WRITER && node->record == WRITTEN) {
    next.nodes[n].left = 0;
    step(next, "the writer releases on node %d", n);
  } else if (k == READER && node->ends) {
    // The record now ends with another reader, at any time up to its former end. Without other readers it ends at once.
    for (int left = 0; left <= (SET(OTHERS) ? node->left : 0); left++) {
      next.nodes[n].ends = 0;
      next.nodes[n].left = (byte)left;
      step(next, "the reader releases on node %d, which leaves %d", n, left);
    }
  }
}

static void expand_extension(const State *from, int k, int n) {
  const Claim *claim = &from->claims[k];
  const Node *node = &from->nodes[n];
  const int plant = SET(PLANT);
  if (!claim->extending && !claim->late) return;
  int own = k == READER ? node->ends > 0 : node->record == WRITTEN;
  if (k == READER && plant == EXTEND_WHOEVER_READS) own = node->record == READ;
  if (k == READER && plant == EXTEND_WHAT_LAPSED) own = node->record != NOBODY;
  if (!own) return;
  State next = *from;
  Node *after = &next.nodes[n];
  if (k == WRITER || (plant != EXTEND_WHOEVER_READS && node->record == READ)) after->left = (byte)larger(node->left, SET(TTL));
  if (k == READER && plant != EXTEND_WHOEVER_READS) after->ends = (byte)SET(TTL);
  step(next, "an extension of claim %d is executed on node %d, unheard", k, n);
  if (!claim->extending || node->extended[k]) return;
  after->extended[k] = 1;
  int extended = 0;
  for (int i = 0; i < SET(NODES); i++) extended += next.nodes[i].extended[k];
  if (extended >= quorum()) {
    next.claims[k].age = claim->since;
    next.claims[k].extending = 0;
    next.claims[k].late = 1;
  }
  step(next, "an extension of claim %d is executed on node %d", k, n);
}

static void expand_claim(const State *from, int k) {
  const Claim *claim = &from->claims[k];
  State next = *from;
  if (claim->phase == IDLE) {
    next.claims[k].phase = ASKING;
    step(next, "claim %d is invoked", k);
    return;
  }
  if (claim->phase == ENDED) return;
  next.claims[k].phase = ENDED;
  step(next, "claim %d ends", k);
  if (claim->phase != HOLDS || !SET(EXTENSIONS)) return;
  next = *from;
  // A claim sends one extension at a time, and gives up the earlier one.
  for (int n = 0; n < SET(NODES); n++) next.nodes[n].extended[k] = 0;
  if (claim->extending) next.claims[k].late = 1;
  next.claims[k].extending = 1;
  next.claims[k].since = 0;
  step(next, "claim %d sends an extension", k);
}

static void expand(const State *from) {
  expand_time(from);
  for (int n = 0; n < SET(NODES); n++) {
    expand_faults(from, n);
    expand_others(from, n);
  }
  for (int k = 0; k < 2; k++) {
    expand_claim(from, k);
    for (int n = 0; n < SET(NODES); n++) {
      expand_acquisition(from, k, n);
      expand_end(from, k, n);
      expand_extension(from, k, n);
    }
  }
}

static void print_state(const State *state) {
  printf("   ");
  for (int n = 0; n < SET(NODES); n++) {
    const Node *node = &state->nodes[n];
    printf(" node %d:", n);
    if (node->record) printf(" %s for %d", node->record == WRITTEN ? "written" : "read", node->left);
    if (node->ends) printf(", the claim for %d", node->ends);
    if (node->guard) printf(" guard %d", node->guard);
    printf(";");
  }
  for (int k = 0; k < 2; k++) printf(" claim %d phase %d age %d", k, state->claims[k].phase, state->claims[k].age);
  printf("\n");
}

int main(int argc, char **argv) {
  read_settings(settings, SETTINGS, argc, argv);
  State start;
  memset(&start, 0, sizeof start);
  return search(start, SET(WAY));
}
