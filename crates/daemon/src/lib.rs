//! What each daemon needs: config loading, tracing, metrics, lifecycle phases, admin HTTP.
