/** From latitude and longitude (WGS 84) to metres of a UTM zone: Krüger's series to sixth order. */

/** @typedef {{zone: number, south: boolean}} Zone */

const RADIUS = 6378137; // a, of the equator, in metres
const FLATTENING = 1 / 298.257223563; // f
const SCALE = 0.9996; // k₀, on the central meridian
const FALSE_EASTING = 500_000;
const FALSE_NORTHING = 10_000_000; // of zones of the south

const E = Math.sqrt(FLATTENING * (2 - FLATTENING)); // e, the eccentricity
const N = FLATTENING / (2 - FLATTENING); // n, the third flattening

// A = a/(1 + n) (1 + n²/4 + n⁴/64 + n⁶/256): a meridian is 2πA long.
const MERIDIAN = (RADIUS / (1 + N)) * (1 + N ** 2 / 4 + N ** 4 / 64 + N ** 6 / 256);

/** α₁ … α₆ of Karney, Transverse Mercator with an accuracy of a few nanometers (2011), eq. 35. */
const ALPHA = [
  polynomial(1, [1 / 2, -2 / 3, 5 / 16, 41 / 180, -127 / 288, 7891 / 37800]),
  polynomial(2, [13 / 48, -3 / 5, 557 / 1440, 281 / 630, -1983433 / 1935360]),
  polynomial(3, [61 / 240, -103 / 140, 15061 / 26880, 167603 / 181440]),
  polynomial(4, [49561 / 161280, -179 / 168, 6601661 / 7257600]),
  polynomial(5, [34729 / 80640, -3418889 / 1995840]),
  polynomial(6, [212378941 / 319334400]),
];

/**
 * Σ cᵢ nⁱ from a power on.
 *
 * @param {number} power
 * @param {number[]} factors
 */
function polynomial(power, factors) {
  return factors.reduce((sum, factor, i) => sum + factor * N ** (power + i), 0);
}

/**
 * The UTM zone that a coordinate system is, or null for another system.
 *
 * @param {string | null} crs  such as "EPSG:32633"
 * @returns {Zone | null}
 */
export function utmZone(crs) {
  const found = /^EPSG:32([67])(\d\d)$/i.exec(crs ?? "");
  const zone = Number(found?.[2]);
  return found && zone >= 1 && zone <= 60 ? { zone, south: found[1] === "7" } : null;
}

/**
 * A place in metres of a zone; NaN for what is no latitude and longitude.
 *
 * @param {Zone} zone
 * @param {number} latitude  in degrees
 * @param {number} longitude
 * @returns {[number, number]}  x (east) and y (north)
 */
export function toMetres({ zone, south }, latitude, longitude) {
  if (!(Math.abs(latitude) <= 90 && Math.abs(longitude) <= 360)) return [NaN, NaN];
  const phi = (latitude * Math.PI) / 180;
  const lambda = ((longitude - (6 * zone - 183)) * Math.PI) / 180; // from the central meridian
  // τ′: the tangent of the conformal latitude
  const tau = Math.tan(phi);
  const sigma = Math.sinh(E * Math.atanh((E * tau) / Math.sqrt(1 + tau * tau)));
  const conformal = tau * Math.sqrt(1 + sigma * sigma) - sigma * Math.sqrt(1 + tau * tau);
  const xi = Math.atan2(conformal, Math.cos(lambda));
  const eta = Math.asinh(Math.sin(lambda) / Math.hypot(conformal, Math.cos(lambda)));
  let [north, east] = [xi, eta];
  ALPHA.forEach((alpha, i) => {
    const twice = 2 * (i + 1);
    north += alpha * Math.sin(twice * xi) * Math.cosh(twice * eta);
    east += alpha * Math.cos(twice * xi) * Math.sinh(twice * eta);
  });
  return [
    FALSE_EASTING + SCALE * MERIDIAN * east,
    (south ? FALSE_NORTHING : 0) + SCALE * MERIDIAN * north,
  ];
}
