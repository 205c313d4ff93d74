"""The engine: carries a plan out on a device with streams (`offcert.runtime.device`)."""
