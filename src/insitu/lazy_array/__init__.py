"""The duck array inside xarray: a virtual array with NumPy's functions, which reads nothing until values are needed."""
