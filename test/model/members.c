// This search shows what `kinds.c`, `permits.c` and `shared-exclusion.c` assume of one node with a lock that several claims
// hold. The node's clock may fall, and the node forgets records. `one-node.ts` shows the same for an exclusive lock.
//
// A node has the lock's record and its members: readers or holders of permits. Each member has an end of its own. Each
// slot of permits also has a row, its own series of tokens. An exclusive lock uses only the record, and does not change
// the members.
//
// The search watches one claim of a reader or of a permit. Other claims may do anything at any time. The node executes
// a message late, again, or never. The clock advances by ticks, and falls any number of times, by `back` at most below
// its highest time. When the node has no trace of the claim, the search watches another one. Locks of other claims end
// at any time.
#include "model.h"

enum { NONE = -100, NOTHING = 0, ALONE, SHARED, PERMITS };
typedef struct { // times and tokens are relative to the clock
  byte fallen;
  byte mode, free, token, end; // the record, which the node forgets at its end
  byte marker;
  byte members_end;            // NONE: no members
  byte ends;                   // the claim's end as a member; NONE: no member
  byte row, floor;             // the last token of the claim's slot, and the floor of all slots; a reader's row is its own token
  byte asked, deadline;        // times of the claim's acquisition
  byte granted, excluded;      // excluded: a later grant excludes the claim
  byte released;
  byte top;                    // the largest token of all grants and raises
  byte own_top;                // the largest token that the claim must exceed
} State;

#include "search.h"

enum { MODE, LINGER, LEAD, TTL, LIMIT, BACK, AHEAD, KEEP, PLANT, WAY, SETTINGS };
static Setting settings[SETTINGS] = {
  [MODE] = {"mode", SHARED, "2: the claim is a reader's; 3: a permit's"},
  [LINGER] = {"linger", 4, "ticks that a record is kept when it is not held"},
  [LEAD] = {"lead", 1, "a token that is further ahead of the node's clock lifts the marker"},
  [TTL] = {"ttl", 2, "ticks that a grant or an extension lasts"},
  [LIMIT] = {"limit", 1, "ticks to the deadline of an acquisition"},
  [BACK] = {"back", 1, "how far the clock may fall below what it has said"},
  [AHEAD] = {"ahead", 2, "how far tokens may be ahead of the clock"},
  [KEEP] = {"keep", 0, "1: rows of tokens go on in the next phase of permits, if nobody else held the lock; 0: they begin at the floor"},
  [PLANT] = {"plant", 0, "the number of a planted error, see `enum`"},
  [WAY] = {"way", 0, "1: print the way to a violation"},
};
enum {
  RIGHT,
  EXTENDS_BY_END_ALONE, // a node extends a member without a look at the record
  RAISES_BY_END_ALONE,
  FIRST_KEEPS_MEMBERS, // the first grant of a phase keeps the members of the earlier phase
  FIRST_DOES_NOT_COUNT_UP,
  NO_FLOOR,
  RECORD_NOT_LIFTED, // tokens of slots do not raise the record's token
  MARKER_NOT_LIFTED,
  RELEASE_DELETES_RECORD,
  NO_DEADLINE,
  NO_FLOOR_WITHOUT_ROWS, // without rows, a new phase of permits begins at the clock
  ROWS_GO_ON,            // rows continue in a new phase of permits, after another claim held the lock
};

static int is_there(const State *s) { return s->mode && s->end > 0; }
static int is_held(const State *s) { return is_there(s) && !s->free && s->end > SET(LINGER); }
static int has_members(const State *s) { return s->members_end > 0; }
static int is_member(const State *s) { return has_members(s) && s->ends > 0; }
static int most(const State *s) { return s->fallen + SET(AHEAD); }

static void drop_members(State *s) {
  s->members_end = s->ends = NONE;
  s->row = s->floor = NONE;
}

static void move(byte *value, int by, int least) {
  if (*value != NONE) *value = (byte)larger(*value - by, least);
}

static void normalise(State *s) {
  const int low = s->fallen - SET(BACK);
  if (s->mode && s->end <= low) s->mode = NOTHING;
  if (!s->mode) s->free = s->end = 0, s->token = NONE;
  if (s->members_end != NONE && s->members_end <= low) drop_members(s);
  if (s->marker != NONE && s->marker < low) s->marker = NONE;
  // Only the order of tokens below the clock matters: a joining reader takes the record's token unchanged.
  const int above = s->token > s->own_top;
  byte *tokens[] = {&s->token, &s->row, &s->floor, &s->top, &s->own_top};
  for (int i = 0; i < 5; i++) move(tokens[i], 0, low - 1);
  if (above && s->token == s->own_top) s->own_top--;
  move(&s->ends, 0, low);
  const int over = s->asked && s->deadline < low && SET(PLANT) != NO_DEADLINE;
  if (over) s->deadline = (byte)(low - 1);
  if (over && s->ends == NONE) s->asked = s->deadline = s->granted = s->excluded = s->released = 0;
}

static void expand_clock(const State *from) {
  for (int by = 1; by >= -(SET(BACK) - from->fallen); by--) {
    if (!by) continue;
    State next = *from;
    byte *values[] = {&next.token, &next.marker, &next.row, &next.floor, &next.top, &next.own_top, &next.ends, &next.members_end};
    for (int i = 0; i < 8; i++) move(values[i], by, -90);
    if (next.mode) next.end = (byte)(next.end - by);
    if (next.asked && SET(PLANT) != NO_DEADLINE) move(&next.deadline, by, -90);
    if (next.asked && SET(PLANT) == NO_DEADLINE && next.deadline > -SET(BACK) - 1) next.deadline--;
    next.fallen = (byte)larger(0, next.fallen - by);
    step(next, by > 0 ? "a tick" : "the clock falls by %d", -by);
  }
}

static void lift(State *s, int token) {
  if (token > SET(LEAD) && SET(PLANT) != MARKER_NOT_LIFTED) s->marker = (byte)larger(s->marker, token);
}

static int least(const State *s) { return larger(0, s->marker == NONE ? NONE : s->marker + 1); }

/** Stores a record that ends with its last member. */
static void hold(State *s, int mode, int ends) {
  const int end = ends + SET(LINGER);
  s->end = (byte)(is_held(s) && s->mode == mode ? larger(s->end, end) : end);
  s->mode = (byte)mode;
  s->free = 0;
}

static void grant_claim(State *s) {
  if (s->released && s->fallen > s->deadline + SET(BACK)) broken("revival: what was released is held again after its deadline");
  s->granted = 1;
  s->excluded = s->released = 0;
  s->ends = (byte)SET(TTL);
}

static void exclude(State *s) { s->excluded = s->granted; }

static void note(State *s, int token, int mode, int own) {
  s->top = (byte)larger(s->top, token);
  if (mode != SET(MODE) || (own && mode == PERMITS)) s->own_top = (byte)larger(s->own_top, token);
}

static void expand_alone(const State *from) {
  if (is_held(from)) return;
  for (int token = larger(least(from), is_there(from) ? from->token + 1 : 0); token <= most(from); token++) {
    State next = *from;
    if (token <= next.top) broken("tokens: an exclusive one is not the largest");
    hold(&next, ALONE, SET(TTL));
    next.token = (byte)token;
    exclude(&next);
    note(&next, token, ALONE, 0);
    lift(&next, token);
    step(next, "somebody acquires alone: %d", token);
  }
}

/** @param by_claim - true for the watched claim, false for another reader */
static void expand_shared(const State *from, int by_claim) {
  if (is_held(from) && from->mode != SHARED) return;
  const int joins = is_held(from);
  State base = *from;
  if (!joins && SET(PLANT) != FIRST_KEEPS_MEMBERS) drop_members(&base);
  const int same = joins || (SET(PLANT) == FIRST_DOES_NOT_COUNT_UP && is_there(from));
  int token = same ? from->token : larger(least(from), is_there(from) ? from->token + 1 : 0);
  for (; token <= (same ? from->token : most(from)); token++) {
    State next = base;
    if (!joins && token <= next.top) broken("tokens: the first reader's is not the largest");
    if (SET(MODE) == SHARED && token <= next.own_top) broken("tokens: a joining reader's is not above those that it excludes");
    hold(&next, SHARED, SET(TTL));
    next.members_end = (byte)larger(next.members_end, next.end);
    next.token = (byte)token;
    note(&next, token, SHARED, 0);
    lift(&next, token);
    if (SET(MODE) != SHARED) exclude(&next);
    if (by_claim) {
      grant_claim(&next);
      next.row = (byte)token;
    }
    step(next, "%s reads: %d", by_claim ? "the claim" : "somebody", token);
  }
}

/** @param own - true for the claim's slot, false for another slot */
static void expand_permit(const State *from, int by_claim, int own) {
  if (is_held(from) && from->mode != PERMITS) return;
  if (!by_claim && own && SET(MODE) == PERMITS && is_member(from)) return;
  State base = *from;
  const int goes_on = has_members(from) && (is_held(from) || SET(PLANT) == ROWS_GO_ON ||
    (SET(KEEP) && is_there(from) && from->mode == PERMITS));
  if (!goes_on && SET(PLANT) != FIRST_KEEPS_MEMBERS) drop_members(&base);
  if (!goes_on) {
    const int forgets = SET(PLANT) == NO_FLOOR || (SET(PLANT) == NO_FLOOR_WITHOUT_ROWS && from->mode == PERMITS);
    base.floor = is_there(from) && !forgets ? from->token : NONE;
  }
  int token = larger(least(from), base.floor + 1);
  if (own) token = larger(token, base.row + 1);
  for (; token <= most(from); token++) {
    State next = base;
    if (own && SET(MODE) == PERMITS && token <= next.own_top) broken("tokens: a slot's is not above those before it");
    const int last = is_there(&next) && next.mode ? next.token : NONE;
    hold(&next, PERMITS, SET(TTL));
    next.members_end = (byte)larger(next.members_end, next.end);
    next.token = (byte)(SET(PLANT) == RECORD_NOT_LIFTED && last != NONE ? last : larger(last, token));
    note(&next, token, PERMITS, own);
    lift(&next, token);
    if (own && SET(MODE) == PERMITS) next.row = (byte)token;
    if (by_claim) grant_claim(&next);
    else if (own && SET(MODE) == PERMITS) {
      next.ends = NONE;
      exclude(&next);
    } else if (SET(MODE) != PERMITS) exclude(&next);
    step(next, "%s acquires %s slot: %d", by_claim ? "the claim" : "somebody", own ? "the claim's" : "another", token);
  }
}

static void expand_claim(const State *from) {
  State next = *from;
  if (!from->asked) {
    if (from->ends != NONE) return;
    next.asked = 1;
    next.deadline = (byte)SET(LIMIT);
    step(next, "the claim is invoked");
    return;
  }
  // A member that asks again gets the same answer; after its end it gets an error.
  const int late = from->deadline < 0 && SET(PLANT) != NO_DEADLINE;
  const int known = has_members(from) && from->ends != NONE && is_there(from) && from->mode == SET(MODE) && is_held(from);
  if (!late && !known) {
    if (SET(MODE) == SHARED) expand_shared(from, 1);
    else expand_permit(from, 1, 1);
  }
  if (!is_member(from)) return;
  const int holds = is_held(from) && from->mode == SET(MODE);
  if (holds || SET(PLANT) == EXTENDS_BY_END_ALONE) {
    next = *from;
    if (next.excluded) broken("extending: somebody was granted since");
    next.ends = (byte)larger(next.ends, SET(TTL));
    next.end = (byte)larger(next.end, SET(TTL) + SET(LINGER));
    next.members_end = (byte)larger(next.members_end, next.end);
    step(next, "the claim extends");
  }
  if (holds || SET(PLANT) == RAISES_BY_END_ALONE) {
    for (int token = larger(from->row, 0); token <= most(from); token++) {
      next = *from;
      if (next.excluded) broken("raising: somebody was granted since");
      if (SET(PLANT) != RECORD_NOT_LIFTED || SET(MODE) == SHARED) next.token = (byte)larger(next.token, token);
      if (SET(MODE) == PERMITS) next.row = (byte)token;
      note(&next, token, SET(MODE), 1);
      lift(&next, token);
      step(next, "the claim raises to %d", token);
    }
  }
  if (!holds) return;
  for (int last = 0; last < 2; last++) {
    next = *from;
    next.ends = NONE;
    next.released = 1;
    if (last) {
      next.free = 1;
      next.end = next.members_end = (byte)SET(LINGER);
      if (SET(MODE) == SHARED) drop_members(&next);
      if (SET(PLANT) == RELEASE_DELETES_RECORD) next.mode = NOTHING;
    }
    step(next, "the claim releases%s", last ? ", the last" : "");
  }
}

static void expand_others(const State *from) {
  State next = *from;
  if (from->mode && from->end <= 0) {
    next.mode = NOTHING;
    step(next, "Redis deletes the record");
  }
  if (from->members_end != NONE && from->members_end <= 0) {
    next = *from;
    drop_members(&next);
    step(next, "Redis deletes the members");
  }
  if (!is_held(from)) return;
  for (int end = 0; end <= SET(TTL); end++) {
    next = *from;
    // A release sets the record's end to that of the remaining members.
    const int left = larger(end, from->mode == SET(MODE) && is_member(from) ? from->ends : 0);
    next.end = (byte)(left + SET(LINGER));
    if (from->mode != ALONE) next.members_end = next.end;
    if (!left) {
      next.free = 1;
      if (from->mode == SHARED) drop_members(&next);
    }
    step(next, "somebody releases or extends, which leaves %d", left);
  }
  for (int token = from->token + 1; token <= most(from); token++) {
    next = *from;
    next.token = (byte)token;
    note(&next, token, from->mode, 0);
    lift(&next, token);
    step(next, "somebody raises to %d", token);
  }
}

static void expand(const State *from) {
  expand_clock(from);
  expand_others(from);
  expand_claim(from);
  expand_alone(from);
  expand_shared(from, 0);
  for (int own = 0; own < 2; own++) expand_permit(from, 0, own);
}

static void print_state(const State *s) {
  static const char *modes[] = {"no record", "alone", "shared", "permits"};
  printf("    %s%s", modes[s->mode], s->free ? ", free" : "");
  if (s->mode) printf(", token %d, end %d", s->token, s->end);
  if (s->members_end != NONE) printf(", members to %d, row %d, floor %d", s->members_end, s->row, s->floor);
  if (s->ends != NONE) printf(", the claim to %d", s->ends);
  printf("\n");
}

int main(int argc, char **argv) {
  read_settings(settings, SETTINGS, argc, argv);
  State start;
  memset(&start, 0, sizeof start);
  start.token = start.marker = start.top = start.own_top = NONE;
  drop_members(&start);
  return search(start, SET(WAY));
}
