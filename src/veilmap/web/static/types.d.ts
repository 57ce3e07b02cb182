/** What the server takes and answers with: written by page/write_types.py. */

/** An array behind a header. */
export interface ArrayInfo {
  name: string;
  rows: number;
  columns: number;
}

/** Numbers of an audit as text; rows begin with their name. */
export interface AuditTable {
  caption: string;
  columns: string[];
  rows: string[][];
}

/** A run's map error against its strongest attack, in metres. */
export interface AuditedRun {
  run: string;
  label: string;
  mae_db: number | null;
  attack: string;
  /** What the attack was given, in words. */
  knows: string;
  /** Median error over users. */
  median: number;
  /** Lower end of the median's 95 % interval. */
  low: number;
  /** Upper end of the median's 95 % interval. */
  high: number;
  /** Share of users placed within 50 m. */
  near: number;
  /** Median error of guessing without any upload. */
  prior: number;
  /** What the audit comes to: what is found, what is promised, and what to change. */
  verdict: string[];
  study: string | null;
}

/** Outer rings of footprints, in the map's metres. */
export interface Buildings {
  polygons: [number, number][][];
}

/** Where an attack places a user, in metres. */
export interface Estimate {
  attack: string;
  x: number;
  y: number;
  /** Metres from the truth; null where it is not known here. */
  error: number | null;
}

/** Something that is known, in words. */
export interface Fact {
  name: string;
  words: string;
}

/** The map's cells and their ground, in metres. */
export interface GridInfo {
  rows: number;
  columns: number;
  cell_size: number;
  west: number;
  east: number;
  south: number;
  north: number;
  /** Such as "EPSG:32612"; null where coordinates are the map's own. */
  crs: string | null;
}

/** All rounds so far. */
export interface History {
  rows: RoundRow[];
  study: string | null;
}

/** Work on this host. */
export interface JobInfo {
  id: string;
  kind: "train" | "audit" | "replicas";
  run: string;
  state: "waiting" | "running" | "done" | "stopped" | "failed";
  /** From 0 to 1 where it is known. */
  share: number | null;
  /** What went wrong. */
  problem: string | null;
}

/** What the values of a layer are. */
export interface LayerHeader {
  name: string;
  title: string;
  unit: string;
  /** Whether values are indices into the run's base stations. */
  categories: boolean;
  /** Where the colours begin: 98 % of all values lie between low and high. */
  low: number;
  high: number;
  /** The cells that are shown: larger ones than the map's where it has very many. */
  grid: GridInfo;
  /** What a value stands for there, such as "middle of 9 m × 9 m"; else empty. */
  how: string;
  /** What the reader should know. */
  notes: string[];
  arrays: ArrayInfo[];
}

/** A layer that can be asked for, or why it cannot. */
export interface LayerInfo {
  name: "gain" | "los" | "best-server" | "heights" | "uncertainty";
  title: string;
  /** Whether it belongs to one base station. */
  per_station: boolean;
  /** Whether that may be a new one, at any place. */
  placeable: boolean;
  /** Why it cannot be shown now, in words for people; null where it can. */
  why_not: string | null;
  /** Whether there is a true counterpart to compare it with. */
  comparable: boolean;
}

/** A mechanism that a new run can have, and its options. */
export interface MechanismInfo {
  name: string;
  /** For people, with whose it is where it is not veilmap's. */
  title: string;
  /** Whether it protects only sums, so that the server must see nothing else. */
  needs_sums: boolean;
  options: OptionInfo[];
}

/** A run that was not audited, and why it cannot be; null where it can. */
export interface MissingAudit {
  run: string;
  label: string;
  why_not: string | null;
}

/** What the form for a new run asks for. */
export interface NewRun {
  /** Train on the measurements of this run; null for a synthetic city. */
  like?: string | null;
  city?: number;
  users?: number;
  /** One of those that there are, by its name. */
  mechanism?: string;
  /** Of the mechanism, by their names; what is left out is the mechanism's own default. */
  options?: Record<string, number>;
  sums?: boolean;
  rounds?: number;
  seed?: number | null;
}

/** An option of a mechanism, as it is declared; null for a bound that it does not have. */
export interface OptionInfo {
  name: string;
  help: string;
  default: number;
  least: number | null;
  most: number | null;
}

/** Which runs there are, and what is being worked on. */
export interface Overview {
  version: string;
  runs: RunSummary[];
  jobs: JobInfo[];
  /** Whether runs may be started here. */
  can_start: boolean;
}

/** A position on the ground, in metres. */
export interface Position {
  x: number;
  y: number;
}

/** What happened to a run since the last event. */
export interface Progress {
  state: "finished" | "running" | "waiting" | "paused" | "stopped" | "failed" | "unreadable";
  played: number;
  rounds: number;
  problem: string | null;
  /** Rows that were not sent before. */
  rows: RoundRow[];
  study: string | null;
}

/** A server-sent event: "progress" while a run goes on, then one "end". */
export interface ProgressEvent {
  event: "progress" | "end";
  /** A `Progress`, as JSON. */
  data: string;
}

/** What went wrong, in one line for people. */
export interface Refusal {
  error: string;
}

/** A round of the history; null for what is not known. */
export interface RoundRow {
  round: number;
  loss: number | null;
  mae_db: number | null;
  gradient_norm: number | null;
  clip_share: number | null;
  noise_energy: number | null;
  epsilon: number | null;
  clients: number;
  dropped: number;
  late: number;
  refused: number;
  opened: number;
  upload_bytes: number;
  notes: string;
  seconds: number | null;
}

/** All that the page must know to show a run. */
export interface RunDetail extends RunSummary {
  grid: GridInfo;
  stations: Station[];
  layers: LayerInfo[];
  mechanism: Record<string, number | string | null>;
  server_sees: "uploads" | "shuffled" | "sums";
  /** What is promised to users, or why nothing is, in a sentence. */
  promise: string;
  /** Kept rounds that attacks can read, counted from 1. */
  kept: number[];
  /** Ids of users, the first thousands of them; empty where nobody is known. */
  user_ids: string[];
  /** Why "what the server sees" cannot be shown; null where it can. */
  why_no_attacks: string | null;
  /** Whether measurements, and with them true positions and gradients, are on this host. */
  measured: boolean;
  has_buildings: boolean;
  /** The command that trains such a run; null where its folder does not say enough. */
  command: string | null;
  /** Of a survey; null for a run. */
  survey: SurveyDetail | null;
}

/** A run in a list, or a survey, which has one sum and no rounds. */
export interface RunSummary {
  kind: "run" | "survey";
  id: string;
  /** Its folder's name. */
  name: string;
  /** What made it, such as "aligned, μ = 50, ρ = 1" or "one sum, ε = 2". */
  label: string;
  state: "finished" | "running" | "waiting" | "paused" | "stopped" | "failed" | "unreadable";
  /** Rounds so far. */
  played: number;
  /** Rounds asked for. */
  rounds: number;
  /** The map's mean absolute error on test users, where it was measured. */
  mae_db: number | null;
  /** Users who measure; null where they take part from nodes of their own. */
  users: number | null;
  /** Why a run failed or cannot be read. */
  problem: string | null;
  /** Words that mark what is shown beyond what was published of a run with a guarantee. */
  study: string | null;
}

/** One way to protect a gradient, and what attacks make of it. */
export interface Scheme {
  /** Also the name of its array. */
  name: "no noise" | "uniform" | "aligned" | "sent";
  title: string;
  estimates: Estimate[];
}

/** One user in one round, counted from 1; arrays are the schemes', and "noise" with σ. */
export interface SeenHeader {
  user: string;
  round: number;
  /** Over how many users the server sees only the sum; null for a single upload. */
  summed: number | null;
  position: Position | null;
  /** ‖g‖ of the user before clipping; null where measurements are not at hand. */
  norm: number | null;
  schemes: Scheme[];
  /** Attacks that are still being prepared: ask again. */
  pending: string[];
  /** The cells that are shown, as in a layer. */
  grid: GridInfo;
  how: string;
  notes: string[];
  arrays: ArrayInfo[];
}

/** A base station, in metres; ``error_m`` is how far off an estimated position may be. */
export interface Station {
  id: string;
  x: number;
  y: number;
  z: number;
  error_m: number | null;
}

/**
 * What was opened of one base station, in contributions at every point. Arrays are "length",
 * that of the sum with its noise, and "counts", the sum turned by the map.
 */
export interface SumHeader {
  station: string;
  /** Standard deviation of the noise on each count. */
  noise: number;
  /** What stands out of it, in a sentence. */
  summary: string;
  /** The points as cells, or larger ones, as in a layer. */
  grid: GridInfo;
  how: string;
  notes: string[];
  arrays: ArrayInfo[];
}

/** What a survey is beside its map. */
export interface SurveyDetail {
  /** Its design and its opening. */
  facts: Fact[];
  audit: AuditTable[];
  /** Why no audit is shown; null where one is. */
  why_no_audit: string | null;
}

/** All audited runs, and the others. */
export interface Tradeoff {
  points: AuditedRun[];
  missing: MissingAudit[];
}
