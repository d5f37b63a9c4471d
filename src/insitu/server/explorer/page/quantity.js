// What a variable measures, by its names, and the colour map that suits it.

/** @import { Variable } from "./archive.js" */

/**
 * What is known of the values that are coloured.
 *
 * @typedef {Pick<Variable, "name" | "standard_name" | "long_name" | "variables">} Named
 */

/** What the names of differences from a mean, a reference or an earlier time hold. */
const ANOMALY =
  /anom(_|al|$)|departure|tendency|(^|_| )(diff|difference|bias|change|increment|trend|residual|correction|deviation)(_|\b|$)/;

/**
 * Colour maps by words of standard names (CF), long names and usual names; the first that fits counts.
 *
 * @type {[RegExp, string][]}
 */
const BY_NAME = [
  [/direction|_phase\b|phase_of|azimuth|hour_angle|right_ascension/, "phase"],
  [/sea_?ice|ice_thickness|snow|glacier|albedo|ice_area|ice_concentration|^(sic|siconc|sithick|aice|hice|snd|snw)$/, "ice"],
  [/vorticity|curl|divergence/, "curl"],
  [/salinity|^(so|sss|sos|salt|psal)$/, "haline"],
  [/chlorophyll|phytoplankton|vegetation|leaf_area|^(chl|chlor_a|ndvi|lai|evi)$/, "algae"],
  [/oxygen|^(o2|oxy|doxy)$/, "oxy"],
  [/turbidity|suspended|attenuation|sediment|aerosol|^(spm|kd490|aod|aod550)$/, "turbid"],
  [/nitrate|phosphate|silicate|carbon|particulate|^(no3|po4|dic)$/, "matter"],
  [/(eastward|northward|upward|x|y|zonal|meridional|vertical)_?(wind|velocity|current)|sea_water_[xy]_velocity|_velocity$|^([uv](10|100|a|as|o)?|wap?|omega|vertical_velocity)$/, "balance"],
  [/speed|gust|^(ws|wspd|sfcwind|si10|fg10)$/, "speed"],
  [/wave_(significant_)?height|significant_height|^(swh|hs|vhm0)$/, "amp"],
  [/(precipitation|rain|snowfall|convective_flux|humidity|water_vapou?r|moisture|runoff)|^(pr|tp|prc|rr|hus|huss|hurs|q|r|tcwv|prw|mrso|mrro|evspsbl|rh)$/, "rain"],
  [/cloud|^(clt|tcc|cl|lcc|mcc|hcc)$/, "dense"],
  [/density|sigma_theta|^(rho|rhop|sigma0)$/, "dense"],
  [/radiation|radiative|irradiance|shortwave|longwave|insolation|^(rsds|rlds|rsut|rlut|ssrd|rsdt)$/, "solar"],
  [/temperature|dewpoint|dew_point|^(tas|ta|ts|t2m|t|tos|sst|thetao|temp|tasmax|tasmin|2t|d2m|mx2t|mn2t|skt|lst|theta)$/, "thermal"],
  [/sea_surface_height|sea_level_anomaly|dynamic_topography|^(zos|ssh|sla|adt)$/, "balance"],
  [/bathymetr|sea_floor_depth|^(deptho|depth)$/, "deep"],
  [/topograph|surface_altitude|elevation|orograph|height_above_(mean_sea_level|reference_ellipsoid|geoid)|^(orog|dem|topo|altitude|hgt_sfc|z_surface)$/, "topo"],
];

/**
 * Return the words by which a variable is recognised.
 *
 * @param {Named} variable
 */
function wordsOf({ name, standard_name, long_name }) {
  return [standard_name, name, long_name].flatMap((text) => (text ? [text.toLowerCase().replaceAll(/[\s-]+/g, "_")] : []));
}

/**
 * Return whether values are differences from something: their zero is where the colours turn.
 *
 * @param {Named} variable
 */
export function isAnomaly(variable) {
  return wordsOf(variable).some((words) => ANOMALY.test(words));
}

/**
 * Return the colour map for a variable by what it measures; null if its names do not say it, as those of what a formula
 * reads do not say what it gives.
 *
 * @param {Named} variable
 */
export function mapOfQuantity(variable) {
  if (variable.variables) return null;
  if (isAnomaly(variable)) return "balance";
  for (const words of wordsOf(variable)) {
    const found = BY_NAME.find(([pattern]) => pattern.test(words));
    if (found) return found[1];
  }
  return null;
}
