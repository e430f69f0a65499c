"""What we show: figures and a page, from result tables alone. No model is loaded here."""
