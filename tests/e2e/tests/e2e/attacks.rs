//! What takes root to do: wall clocks that are wrong, an API server that lags, networks that are cut.
