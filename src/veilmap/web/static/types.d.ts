/** What the server answers with, and what modules of the page hand to each other. */

/** A run in a list. */
export interface RunSummary {
  id: string;
  /** Its folder's name. */
  name: string;
  /** Its mechanism in a few words, such as "aligned, μ = 50, ρ = 1". */
  label: string;
  state: "finished" | "running" | "waiting" | "paused" | "stopped" | "failed" | "unreadable";
  /** Rounds played, and asked for. */
  played: number;
  rounds: number;
  /** The map's mean absolute error on test users, where it was measured. */
  mae_db: number | null;
  /** Users who measure. */
  users: number;
  /** Why a run failed or cannot be read. */
  problem: string | null;
  /** Words that mark what is shown beyond what was published of a run with a guarantee. */
  study: string | null;
}

export interface Station {
  id: string;
  x: number;
  y: number;
  z: number;
}

export interface LayerInfo {
  name: "gain" | "los" | "best-server" | "heights" | "uncertainty";
  title: string;
  /** Whether it belongs to one base station. */
  per_station: boolean;
  /** Why it cannot be shown now, in words for people; null where it can. */
  why_not: string | null;
  /** The map has a true counterpart to compare it with. */
  comparable: boolean;
}

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

export interface RunDetail extends RunSummary {
  grid: GridInfo;
  stations: Station[];
  layers: LayerInfo[];
  mechanism: Record<string, number | string | null>;
  server_sees: "uploads" | "sums";
  /** What is promised to users, or why nothing is, in a sentence. */
  promise: string;
  /** Kept rounds that attacks can read, counted from 1. */
  kept: number[];
  /** Ids of users, the first thousands of them; empty where measurements are not at hand. */
  user_ids: string[];
  /** Why "what the server sees" cannot be shown; null where it can. */
  why_no_attacks: string | null;
  /** Whether measurements, and with them true positions and gradients, are on this host. */
  measured: boolean;
  has_buildings: boolean;
  /** The command that trains such a run; null where its folder does not say enough. */
  command: string | null;
}

/** A round of the history; null for what is not known. */
export interface HistoryRow {
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

/** Server-sent: "progress" while a run goes on, then one "end". */
export interface Progress {
  state: RunSummary["state"];
  played: number;
  rounds: number;
  problem: string | null;
  /** Rows that were not sent before. */
  rows: HistoryRow[];
  study: string | null;
}

/** Work on this host beside runs. */
export interface Job {
  id: string;
  kind: "train" | "audit" | "replicas";
  run: string;
  state: "waiting" | "running" | "done" | "stopped" | "failed";
  /** From 0 to 1 where it is known. */
  share: number | null;
  /** What went wrong. */
  problem: string | null;
}

export interface State {
  version: string;
  runs: RunSummary[];
  jobs: Job[];
  /** Whether runs may be started here. */
  can_start: boolean;
}

export interface ArrayInfo {
  name: string;
  rows: number;
  columns: number;
}

/** A header and arrays of float32, row 0 southern. */
export interface Pack<Header> {
  header: Header;
  arrays: Map<string, Float32Array>;
}

export interface LayerHeader {
  name: string;
  title: string;
  unit: string;
  /** Values are numbers of things: indices into the run's stations. */
  categories: boolean;
  /** Where the colours begin and end: the middle 98 % of values. */
  low: number;
  high: number;
  /** The cells that are shown: larger ones than the map's where it has very many. */
  grid: GridInfo;
  /** What a value stands for there, such as "at the middle of 9 m × 9 m"; else empty. */
  how: string;
  arrays: ArrayInfo[];
  /** What the reader should know. */
  notes: string[];
}

export interface Estimate {
  attack: string;
  x: number;
  y: number;
  /** Metres from the truth; null where it is not known here. */
  error: number | null;
}

export interface Scheme {
  /** Also the name of its array. */
  name: "no noise" | "uniform" | "aligned" | "sent";
  title: string;
  estimates: Estimate[];
}

export interface SeenHeader {
  user: string;
  round: number;
  /** The server sees only the sum over this many users; null for a single upload. */
  summed: number | null;
  position: { x: number; y: number } | null;
  /** ‖g‖ of the user before clipping; null where measurements are not at hand. */
  norm: number | null;
  schemes: Scheme[];
  /** Attacks that are still being prepared: ask again. */
  pending: string[];
  /** As in a layer. */
  grid: GridInfo;
  how: string;
  notes: string[];
  /** One for each scheme, and "noise" with σ of the aligned noise. */
  arrays: ArrayInfo[];
}

export interface TradeoffPoint {
  run: string;
  label: string;
  mae_db: number | null;
  attack: string;
  /** Which rounds it saw, in words. */
  when: string;
  /** Metres: median over users, with its 95 % interval. */
  median: number;
  low: number;
  high: number;
  /** Median of guessing without any upload. */
  prior: number;
  promise: string;
  study: string | null;
}

export interface Tradeoff {
  points: TradeoffPoint[];
  /** Runs without an audit: those that can have one, and why others cannot. */
  missing: { run: string; label: string; why_not: string | null }[];
}

/** What the form for a new run asks for; null is the mechanism's own default. */
export interface NewRun {
  /** Train on the measurements of this run; null for a synthetic city. */
  like: string | null;
  city: number;
  users: number;
  mechanism: "none" | "uniform" | "aligned" | "aggregate";
  budget: number | null;
  tradeoff: number | null;
  epsilon: number | null;
  clip: number | null;
  sums: boolean;
  rounds: number;
  seed: number | null;
}
