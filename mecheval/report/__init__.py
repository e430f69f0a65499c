"""Figures and pages, made from result tables alone; no model is loaded here."""
